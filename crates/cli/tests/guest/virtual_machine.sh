# Runs in the virtual machine of crates/cli/tests/whole/virtual_machine.rs, whose root file system is a Braid volume. The test
# reads `@@` lines on the console, and answers on it.

fail() {
  echo "@@failed $*"
  dmesg | tail -n 20
  exit 1
}

queue=/sys/block/vda/queue
[ "$(cat /sys/block/vda/serial)" = vault ] || fail "serial $(cat /sys/block/vda/serial)"
[ "$(cat $queue/write_cache)" = "write back" ] || fail "write cache"
[ "$(cat $queue/discard_max_bytes)" -gt 0 ] || fail "discard"
[ "$(cat $queue/write_zeroes_max_bytes)" -gt 0 ] || fail "write zeroes"
[ "$(ls /sys/block/vda/mq | wc -l)" = 2 ] || fail "queues"
echo "@@booted $(uname -r)"

# Writes files until the test has answered; the daemon may die at any time meanwhile.
write_until_told() {
  rm -f /tmp/told
  (read -r line && touch /tmp/told) </dev/console &
  while [ ! -e /tmp/told ]; do
    number=$((${number:-0} + 1))
    file=/data/$((number % 24))
    head -c 300000 /dev/urandom >/tmp/new
    sum=$(sha256sum </tmp/new)
    dd if=/tmp/new of=$file bs=100k conv=fsync 2>/dev/null || fail "write $number"
    echo "${sum%  -}  $file" >/tmp/sum-$((number % 24))
    # Direct reads cannot come from the page cache.
    [ "$(dd if=$file iflag=direct bs=4k 2>/dev/null | sha256sum)" = "$sum" ] || fail "read $number"
    [ $((number % 8)) != 0 ] || echo "@@wrote $number"
  done
}

for round in $(seq "$rounds"); do
  write_until_told
  echo "@@round $round"
done

# Another size, which the guest is told under its file system.
echo "@@size $(cat /sys/block/vda/size)"
tries=0
while [ "$(cat /sys/block/vda/size)" = 204800 ]; do
  tries=$((tries + 1))
  [ $tries -lt 6000 ] || fail "no other size"
  sleep 0.1
done
echo "@@size $(cat /sys/block/vda/size)"
dd if=/dev/zero of=/dev/vda bs=1M seek=111 count=1 oflag=direct conv=notrunc 2>/dev/null || fail "a write to the new end"

sync
echo 3 >/proc/sys/vm/drop_caches
cat /tmp/sum-* | sha256sum -c -s || fail "sums"
fstrim / || fail "fstrim"
cat /tmp/sum-* | sha256sum -c -s || fail "sums after fstrim"
! dmesg | grep -i -E 'I/O error|hung_task|blocked for more|EXT4-fs error' || fail "complaints of the kernel"
echo "@@verified $number"
