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

for round in 1 2 3; do
  write_until_told
  echo "@@round $round"
done
sync
echo 3 >/proc/sys/vm/drop_caches
cat /tmp/sum-* | sha256sum -c -s || fail "sums"
fstrim / || fail "fstrim"
cat /tmp/sum-* | sha256sum -c -s || fail "sums after fstrim"
! dmesg | grep -i -E 'I/O error|hung_task|blocked for more|EXT4-fs error' || fail "complaints of the kernel"
echo "@@verified $number"
