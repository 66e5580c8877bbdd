# Runs in the machine of scripts/guest, for crates/cli/tests/guest/main.rs: a block device by ublk, under fio and ext4, while
# its daemons die and follow each other. Each step that holds prints `@@ok STEP`; the first that does not ends the job.

ok() {
  echo "@@ok $1 at $(cut -d' ' -f1 /proc/uptime) s"
}

fail() {
  echo "@@failed $*"
  for log in /tmp/*.log; do echo "== $log" && tail -n 40 "$log"; done
  dmesg | grep -E 'ublk|Oops|BUG|WARN|I/O error' | tail -n 20
  exit 1
}

# Waits, bounded, until a command succeeds.
until_true() {
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 3000 ] || return 1
    sleep 0.1
  done
}

# Serves the volume; returns once the daemon is ready. Log and process: $serve, $daemon.
serve() {
  count=$((${count:-0} + 1)) serve=/tmp/serve$count.log
  braid serve vault >"$serve.ready" 2>"$serve" &
  daemon=$!
  until_true grep -q nbd "$serve.ready" || fail "daemon $count is not ready"
}

# True if the device has completed $1 more writes since `mark_writes`.
mark_writes() {
  writes=$(awk '{ print $5 }' /sys/block/ublkb0/stat)
}
have_written() {
  [ "$(awk '{ print $5 }' /sys/block/ublkb0/stat)" -ge $((writes + $1)) ]
}

# Random writes with checks of every byte, in the background: $fio. With seed $1 and depth $2.
verify() {
  fio --name=verify --filename=/dev/ublkb0 --direct=1 --ioengine=io_uring --rw=randwrite --bsrange=4k-64k --iodepth="$2" \
    --size=24M --verify=crc32c --do_verify=1 --verify_fatal=1 --randseed="$1" >/tmp/fio.log 2>&1 &
  fio=$!
}

is_dead() {
  ! kill -0 "$1"
}

no_complaint() {
  ! dmesg | grep -E 'Oops|BUG: |WARNING: |I/O error|blocked for more'
}

braid create vault --ssd /var/ssd,size=96MiB --hdd /var/hdd,size=160MiB >/tmp/create.log 2>&1 || fail create

# The driver of ublk is loaded by the command.
modprobe loop
serve
[ "$(braid attach vault 2>/tmp/attach.log)" = /dev/ublkb0 ] || fail attach
braid attach vault --json | grep -q '"block_device_kind":"ublk"' || fail attach again
[ "$(readlink /dev/braid/vault)" = /dev/ublkb0 ] || fail link
braid status vault --json | grep -q '"attached_file":"/dev/ublkb0"' || fail status
braid attach vault --via loop >/tmp/refused.log 2>&1 && fail a second way
[ "$(cat /sys/block/ublkb0/queue/logical_block_size)" = 4096 ] || fail sector size
[ "$(cat /sys/block/ublkb0/queue/write_cache)" = "write back" ] && [ "$(cat /sys/block/ublkb0/queue/fua)" = 1 ] || fail cache
ok attach

verify 1 16
wait $fio || fail fio
blkdiscard /dev/ublkb0 || fail discard
[ -z "$(dd if=/dev/ublkb0 bs=1M count=24 2>/dev/null | tr -d '\0' | head -c 1)" ] || fail discarded bytes
ok verify

# The daemon is killed under fio; the next one continues.
verify 2 16
mark_writes
until_true have_written 120 || fail no writes before the kill
kill -9 $daemon && wait $daemon
kill -0 $fio || fail fio ended with the daemon
serve
grep -q 'served again' "$serve" || fail "no device was taken over"
mark_writes
until_true have_written 120 || fail no writes after the kill
kill -9 $daemon && wait $daemon
serve
wait $fio || fail fio saw a death
ok kill

# All 64 places for requests are in use: no command waits whose end would tell the kernel of the death.
verify 3 96
mark_writes
until_true have_written 120 || fail no writes before the kill
kill -9 $daemon && wait $daemon
serve
wait $fio || fail fio saw a death with all places in use
no_complaint || fail complaints of the kernel
ok full

# Daemons die at any moment of their start, also in the middle of a take-over.
verify 5 16
mark_writes
until_true have_written 50 || fail no writes before the kill
kill -9 $daemon && wait $daemon
for moment in 0.2 0.5 0.7 0.8 0.9 1.0 1.1 1.2 1.3 1.5; do
  braid serve vault >/dev/null 2>/tmp/moment.log &
  daemon=$!
  sleep $moment
  kill -9 $daemon && wait $daemon
done
serve
wait $fio || fail fio saw a death at the start
no_complaint || fail complaints of the kernel
ok moments

# A successor under a mounted file system, by SIGUSR1 and by SIGTERM.
# By its path: busybox has one, too.
/bin/mke2fs -q -t ext4 /dev/ublkb0 >/tmp/mke2fs.log 2>&1 || fail mke2fs
braid attach vault --mount /mnt >/tmp/mount.log 2>&1 || fail mount
fio --name=files --directory=/mnt --rw=randwrite --bs=4k --size=8M --numjobs=2 --fsync=16 --time_based --runtime=3600 \
  --verify=crc32c --verify_backlog=64 --verify_fatal=1 >/tmp/files.log 2>&1 &
fio=$!
# Replaces the daemon, after signal $1, and the program, as an upgrade does; $2: name of a file that is written before.
replace() {
  mark_writes
  until_true have_written 100 || fail no writes before $1
  head -c 1000000 /dev/urandom >/mnt/$2 && sha256sum /mnt/$2 >>/tmp/sums
  cp /bin/braid /bin/braid.new && mv /bin/braid.new /bin/braid
  kill -$1 $daemon
  wait $daemon || fail "exit status $? after $1"
  grep -q 'wait for the next daemon' "$serve" || fail "$1 says nothing of the device"
  serve
  mark_writes
  until_true have_written 100 || fail no writes after $1
}
replace USR1 USR1
replace TERM TERM
# As many more as `make upgrade-test` asks for.
for number in $(seq ${upgrades:-0}); do
  replace USR1 file
  sed -i '/file$/d' /tmp/sums
  echo "@@replaced $number at $(cut -d' ' -f1 /proc/uptime) s"
done
# fio ends with 128 after the signal.
kill -INT $fio
wait $fio
grep -q 'err= 0' /tmp/files.log && ! grep -q 'err= *[1-9]' /tmp/files.log || fail fio saw a successor
sync
echo 3 >/proc/sys/vm/drop_caches
sha256sum -c -s /tmp/sums || fail sums
no_complaint || fail complaints of the kernel
ok successor

# In use: refused. Afterwards, unmounted and removed.
sleep 1000 </mnt/USR1 &
user=$!
braid detach vault >/tmp/detach.log 2>&1 && fail detach of a file system in use
braid stop vault >/tmp/stop.log 2>&1 && fail stop of a volume in use
kill $user && wait $user
sha256sum -c -s /tmp/sums || fail sums after refusals
sleep 1000 </dev/ublkb0 &
user=$!
braid detach vault >/tmp/detach.log 2>&1 && fail detach of an open device
grep -q sleep /tmp/detach.log || fail "the user is not named"
kill $user && wait $user
[ -b /dev/ublkb0 ] || fail the device went
braid detach vault >/tmp/detach.log 2>&1 || fail detach
[ ! -e /dev/ublkb0 ] && [ ! -e /dev/ublkc0 ] && [ ! -e /dev/braid/vault ] || fail the device stays
braid detach vault >/tmp/detach.log 2>&1 && fail a second detach
for i in 1 2 3 4 5; do
  [ "$(braid attach vault --via ublk)" = /dev/ublkb0 ] || fail attach $i
  dd if=/dev/urandom of=/dev/ublkb0 bs=64k count=4 2>/dev/null || fail write $i
  braid detach vault >/tmp/detach.log 2>&1 || fail detach $i
done
ok cycles

# Ended while unused: the device goes with the daemon.
braid attach vault >/dev/null || fail attach
kill -TERM $daemon
wait $daemon || fail "exit status $?"
[ ! -e /dev/ublkb0 ] || fail the unused device stays
ok unused

# Dead for good: the device is kept for a daemon until it is given up, and then its users get errors.
serve
braid attach vault >/dev/null || fail attach
verify 4 16
mark_writes
until_true have_written 100 || fail no writes before the kill
kill -9 $daemon && wait $daemon
braid detach --dead vault >/tmp/dead.log 2>&1
[ -b /dev/ublkb0 ] || fail a device that waits was removed
braid status vault --json | grep -q '"waiting_block_devices":\["/dev/ublkb0"\]' || fail status
braid forget vault >/tmp/forget.log 2>&1 && fail a volume was forgotten under its users
braid detach vault >/tmp/refused.log 2>&1 && fail detach of a device that waits
grep -q -- --force /tmp/refused.log && grep -q fio /tmp/refused.log || fail remedy
kill -0 $fio || fail fio saw an error too early
braid detach vault --force >/tmp/force.log 2>&1 || fail detach --force
wait $fio && fail fio saw no error
[ ! -e /dev/ublkb0 ] || fail the device stays
serve
[ ! -e /dev/ublkb0 ] || fail a removed device was taken over
ok dead

# Another size: drivers of Linux 6.16 and later can change the size of a device in use.
device_has() {
  [ "$(cat /sys/block/ublkb0/size)" = $(($1 * 2048)) ]
}
[ "$(braid attach vault)" = /dev/ublkb0 ] && blkdiscard /dev/ublkb0 || fail attach
braid detach vault >/dev/null 2>&1 && braid resize vault 64MiB >/tmp/resize.log 2>&1 || fail resize while detached
[ "$(braid attach vault)" = /dev/ublkb0 ] && device_has 64 || fail attach of another size
sleep 1000 </dev/ublkb0 &
user=$!
case $(uname -r) in
6.1[2-5].*)
  braid resize vault 80MiB >/tmp/resize.log 2>&1 && fail a resize that the driver lacks
  grep -q 'Linux 6.16' /tmp/resize.log && device_has 64 || fail "no remedy"
  ;;
*)
  braid resize vault 80MiB >/tmp/resize.log 2>&1 || fail resize of an attached volume
  grep -q '^/dev/ublkb0 has this size' /tmp/resize.log && device_has 80 || fail the size of the device
  dd if=/dev/urandom of=/dev/ublkb0 bs=1M seek=79 count=1 conv=notrunc 2>/dev/null || fail a write to the new end
  braid resize vault 64MiB >/tmp/resize.log 2>&1 && fail a smaller size under a user
  # Daemons die at any moment of a resize: the next one gives the device the size of the volume.
  size=80
  for moment in 0.05 0.1 0.2 0.3 0.5 0.8 1.2 2; do
    size=$((size + 2))
    braid resize vault ${size}MiB >/tmp/resize.log 2>&1 &
    sleep $moment
    kill -9 $daemon && wait $daemon
    serve
    bytes=$(braid status vault --json | grep -o '"size_bytes":[0-9]*' | head -n 1)
    device_has $((${bytes#*:} / 1048576)) || fail "volume of $bytes bytes, device of $(cat /sys/block/ublkb0/size) sectors"
  done
  ;;
esac
kill $user && wait $user
braid detach vault >/tmp/detach.log 2>&1 || fail detach
ok size

# A volume in memory ends with its daemon: its users get errors, and wait for nobody.
braid serve --temporary --ssd memory,size=64MiB --hdd memory,size=128MiB >/tmp/temporary 2>/tmp/temporary.log &
other=$!
until_true grep -q nbd /tmp/temporary || fail temporary
[ "$(braid attach temporary)" = /dev/ublkb0 ] || fail attach of temporary
sleep 1000 </dev/ublkb0 &
user=$!
kill -9 $other && wait $other
until_true [ ! -e /dev/ublkb0 ] || fail the device of a temporary volume stays
kill $user && wait $user
ok temporary

braid attach vault --via loop | grep -q '^/dev/loop' || fail loop
braid detach vault >/dev/null 2>&1 || fail detach of loop
braid stop vault >/tmp/stop.log 2>&1 || fail stop
braid check vault >/tmp/check.log 2>&1 || fail check
ok loop

[ -x /bin/mkfs.xfs ] || exit 0

# Hystor does not know the structures of XFS: it learns of the metadata from the flag of the requests alone.
dmesg -c >/dev/null # the errors of the given-up device
braid create flags --ssd /var/ssd-flags,size=96MiB --hdd /var/hdd-flags,size=400MiB --policy hystor >/tmp/create.log 2>&1 ||
  fail create
braid serve flags >/tmp/flags 2>/tmp/flags.log &
daemon=$!
until_true grep -q nbd /tmp/flags || fail flags
flags=$(braid attach flags --via ublk 2>/tmp/attach.log) || fail "attach of flags: $flags"
metadata_blocks() {
  braid status flags --json | grep -o '"metadata_blocks":[0-9.]*' | cut -d: -f2 | awk '{ sum += $1 } END { print sum + 0 }'
}
# mkfs writes without the flag, as any program.
mkfs.xfs -q "$flags" >/tmp/mkfs.log 2>&1 || fail mkfs.xfs
sync
[ "$(metadata_blocks)" = 0 ] || fail "$(metadata_blocks) blocks of metadata without a flag"
modprobe xfs
mount -t xfs "$flags" /mnt >/tmp/mount.log 2>&1 || fail mount of XFS
for number in $(seq 300); do echo $number >/mnt/file$number; done
sync
umount /mnt || fail umount of XFS
[ "$(metadata_blocks)" -gt 0 ] || fail "no metadata by its flag: $(braid status flags)"
no_complaint || fail complaints of the kernel
braid stop flags >/tmp/stop.log 2>&1 || fail stop of flags
ok metadata
