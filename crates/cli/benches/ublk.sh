# Runs in the machine of scripts/guest, for scripts/bench-ublk: block devices over a file of 256 MiB in memory, one after the other,
# $rounds times: Braid by ublk, rublk's loop target, and Braid by FUSE and a loop device. Prints
# `@@result DEVICE RW DEPTH REQUESTS-PER-SECOND`.

fail() {
  echo "@@failed $*"
  tail -n 20 /tmp/*.log
  exit 1
}

until_true() {
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || return 1
    sleep 0.1
  done
}

# On device $1.
run_fio() {
  device=$1
  shift
  fio --name=load --filename="$device" --direct=1 --ioengine=io_uring --size=64M --bs=4k --minimal "$@" 2>/tmp/fio.log
}

# Measures device $2 under the name $1.
measure() {
  run_fio "$2" --rw=write --bs=1M >/tmp/fill.log || fail "fio on $1"
  for rw in randread randwrite; do
    for depth in 1 64; do
      run_fio "$2" --rw=$rw --iodepth=$depth --time_based --runtime="${seconds:-3}" >/tmp/result.log || fail "fio on $1"
      echo "@@result $1 $rw $depth $(awk -F';' '{ print $8 + $49 }' /tmp/result.log)"
    done
  done
}

# $1 is the way: ublk or loop.
measure_braid() {
  braid serve vault >/tmp/ready.log 2>/tmp/serve.log &
  daemon=$!
  until_true grep -q nbd /tmp/ready.log || fail serve
  device=$(braid attach vault --via "$1" 2>/tmp/attach.log) || fail attach
  measure "braid-$1" "$device"
  braid detach vault >/tmp/detach.log 2>&1 || fail detach
  kill $daemon && wait $daemon
}

measure_rublk() {
  rublk add loop --file /tmp/file --queue 1 --depth 64 >/tmp/rublk.log 2>&1 || fail rublk
  until_true test -b /dev/ublkb0 || fail rublk
  measure rublk-loop /dev/ublkb0
  rublk del -n 0 >/tmp/del.log 2>&1 || fail rublk del
}

modprobe -a loop ublk_drv
truncate -s 256M /tmp/file
braid create vault --ssd /tmp/ssd,size=256MiB --hdd /tmp/hdd,size=64MiB --policy ssd-only --size 128MiB >/tmp/create.log 2>&1 || fail create
for _ in $(seq "${rounds:-5}"); do
  measure_braid ublk
  measure_rublk
  measure_braid loop
done
echo "@@passed"
