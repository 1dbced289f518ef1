#!/usr/bin/env bash
# Runs the tests of the kernels with AVX-512 on a machine without it: under a Linux in Bochs, which
# emulates such a processor two hundred times slower than a real one. Needs amd64 Debian and, to
# install packages, root. Arguments go to the test program: scripts/avx512.sh --gtest_filter='BF16*'
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/setup.sh

ensure_packages "${build_packages[@]}" libgtest-dev libgmock-dev \
  bochs bochs-term busybox-static isolinux syslinux-common xorriso
build ON ops_test

# The kernel, unpacked beside the build: installed, it would change how this system starts.
root=$PWD/build/avx512
mkdir -p "$root"
if [[ ! -e $root/vmlinuz ]]; then
  kernel=$(apt-cache depends linux-image-cloud-amd64 \
    | awk '$1 == "Depends:" { print $2 }') || true
  if [[ -z $kernel ]]; then
    echo "The package linux-image-cloud-amd64 is not to be had; apt-get update may help" >&2
    exit 1
  fi
  rm -rf "$root/debs" && mkdir "$root/debs"
  (cd "$root/debs" && apt-get -qq -o APT::Sandbox::User=root download "$kernel")
  dpkg-deb --fsys-tarfile "$root"/debs/*.deb | tar -xO --wildcards './boot/vmlinuz-*' \
    >"$root/vmlinuz.partial"
  mv "$root/vmlinuz.partial" "$root/vmlinuz"
fi

# The system that it starts: the test program and the libraries that it loads.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{system/{dev,lib64,proc,tmp},disc}
cp /bin/busybox build/release/src/ops/ops_test "$work/system"
ldd build/release/src/ops/ops_test | grep -o '/[^ ]*' | xargs cp -Lt "$work/system/lib64"
cat >"$work/system/init" <<EOF
#!/busybox sh
/busybox mount -t devtmpfs devtmpfs /dev
/busybox mount -t proc proc /proc
export LD_LIBRARY_PATH=/lib64 OMP_WAIT_POLICY=passive SANDGLASS_TEST_TARGET=AVX3
/ops_test$( (($#)) && printf ' %q' "$@")
echo "exit status \$?"
/busybox stty sane # waits until the serial port has sent all of it
/busybox poweroff -f
EOF
chmod +x "$work/system/init"
(cd "$work/system" && find . | busybox cpio -o -H newc 2>/dev/null) >"$work/disc/initrd"

# Bochs gives the compact form of XSAVE another size than Linux expects, which then leaves AVX off.
# After a panic the processor resets, which ends Bochs.
cp "$root/vmlinuz" /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 \
  "$work/disc"
cat >"$work/disc/isolinux.cfg" <<'EOF'
default test
label test
  kernel vmlinuz
  append initrd=initrd console=ttyS0 loglevel=1 panic=-1 reboot=triple clearcpuid=xsavec,xsaves
EOF
xorriso -as mkisofs -quiet -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 \
  -boot-info-table -o "$work/disc.iso" "$work/disc" 2>/dev/null

cat >"$work/bochsrc" <<EOF
display_library: term
cpu: model=corei7_skylake_x, ips=50000000, reset_on_triple_fault=0
clock: sync=none
memory: guest=1024, host=1024
romimage: file=/usr/share/bochs/BIOS-bochs-latest, options=fastboot
vgaromimage: file=/usr/share/vgabios/vgabios.bin
sound: driver=dummy
ata0-master: type=cdrom, path="$work/disc.iso", status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=/dev/fd/3
log: $root/bochs.log
error: action=ignore
panic: action=fatal
EOF
echo continue >"$work/commands" # for the debugger, which waits for one
echo "== starting Linux in Bochs (a minute)" >&2
{ TERM=vt100 bochs -f "$work/bochsrc" -rc "$work/commands" 3>&1 >"$root/screen.log" 2>&1 \
    </dev/null || true; } | sed -u 's:\r$::' | tee "$work/output"
if ! grep -q '^exit status' "$work/output"; then
  echo "Bochs ended before the tests did: see $root/bochs.log and $root/screen.log" >&2
  exit 1
fi
exit "$(sed -n 's/^exit status //p' "$work/output")"
