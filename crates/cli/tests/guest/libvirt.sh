# Runs in the virtual machine of crates/cli/tests/whole/libvirt.rs: writes 64 pieces of 64 KiB to the disk and reads each back, while
# the daemon is replaced.

modprobe -a virtio_pci virtio_blk
tries=0
while [ ! -b /dev/vda ] && [ $tries -lt 600 ]; do
  tries=$((tries + 1))
  sleep 0.1
done
head -c 65536 /dev/zero | tr '\0' A >/tmp/piece
for number in $(seq 0 63); do
  dd if=/tmp/piece of=/dev/vda bs=64k seek=$number oflag=direct conv=notrunc 2>/dev/null || exit 1
  dd if=/dev/vda bs=64k skip=$number count=1 iflag=direct 2>/dev/null | cmp - /tmp/piece || exit 1
  echo "@@wrote $number"
  sleep 0.1
done
! dmesg | grep -E 'I/O error|blocked for more'
