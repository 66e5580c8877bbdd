# For scripts/bench-ublk, in the machine of scripts/guest or on this machine, in a folder in memory: block devices over a file of
# 256 MiB, one after the other, $rounds times. $devices: Braid by ublk, rublk's loop target, Braid by FUSE and a loop device, or
# the kernel's loop device alone. Prints `@@result DEVICE RW DEPTH REQUESTS-PER-SECOND`.

fail() {
  echo "@@failed $*"
  tail -n 20 *.log
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
  fio --name=load --filename="$device" --direct=1 --ioengine=io_uring --size=64M --bs=4k --minimal "$@" 2>fio.log
}

# Measures device $2 under the name $1.
measure() {
  run_fio "$2" --rw=write --bs=1M >fill.log || fail "fio on $1"
  for rw in randread randwrite; do
    for depth in 1 64; do
      run_fio "$2" --rw=$rw --iodepth=$depth --time_based --runtime="${seconds:-3}" >result.log || fail "fio on $1"
      echo "@@result $1 $rw $depth $(awk -F';' '{ print $8 + $49 }' result.log)"
    done
  done
}

# $1 is the way: ublk or loop.
measure_braid() {
  braid serve vault >ready.log 2>serve.log &
  daemon=$!
  until_true grep -q nbd ready.log || fail serve
  device=$(braid attach vault --via "$1" 2>attach.log) || fail attach
  measure "braid-$1" "$device"
  braid detach vault >detach.log 2>&1 || fail detach
  kill $daemon && wait $daemon
  daemon=
}

measure_rublk() {
  rublk add loop --file $PWD/file --queue 1 --depth 64 >rublk.log 2>&1 || fail rublk
  until_true test -b /dev/ublkb0 || fail rublk
  measure rublk-loop /dev/ublkb0
  rublk del -n 0 >del.log 2>&1 || fail rublk del
}

measure_loop() {
  device=$(losetup --find --show --direct-io=on --sector-size 4096 file) || fail losetup
  # Removed with its last user, also if a measurement fails.
  (measure kernel-loop "$device")
  status=$?
  losetup --detach "$device" && [ $status = 0 ] || fail kernel-loop
}

if [ -n "$folder" ]; then
  cd "$folder" || exit 1
  # This machine outlives a failure: nothing is left attached.
  trap 'braid detach vault >detach.log 2>&1; [ -z "$daemon" ] || kill $daemon 2>kill.log; wait' EXIT
else
  cd /tmp && modprobe -a loop ublk_drv
fi
truncate -s 256M file
braid create vault --ssd ssd,size=256MiB --hdd hdd,size=64MiB --policy ssd-only --size 128MiB >create.log 2>&1 || fail create
for _ in $(seq "${rounds:-5}"); do
  for name in ${devices:-braid-ublk rublk-loop braid-loop}; do
    case $name in
    braid-*) measure_braid ${name#braid-} ;;
    rublk-loop) measure_rublk ;;
    kernel-loop) measure_loop ;;
    esac
  done
done
echo "@@passed"
