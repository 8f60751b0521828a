#!/bin/bash
# Says what a pack lacks: a shared library that is neither in it nor glibc's, or room below the limit. Exit status 0
# where nothing is wrong. Needs readelf (binutils).
#
#   pack/check.sh DIR
set -u -o pipefail
dir=${1:?the folder of a pack}
limit_bytes=$((40 * 1024 * 1024))
wrong=0

command -v readelf >/dev/null || { echo "there is no readelf: install binutils"; exit 2; }
[ -x "$dir/bin/seeksim" ] || { echo "$dir is no pack: it has no bin/seeksim"; exit 1; }
for file in "$dir"/bin/* "$dir"/lib/* "$dir"/standin/*; do
  [ -f "$file" ] && ! [ -L "$file" ] || continue
  while IFS= read -r needed; do
    case $needed in
      ld-linux-x86-64.so.2 | libc.so.6 | libm.so.6 | libdl.so.2 | librt.so.1 | libpthread.so.0 | libresolv.so.2) ;;
      *) [ -e "$dir/lib/$needed" ] || { echo "${file#"$dir"/} needs $needed, which is not in lib/"; wrong=1; } ;;
    esac
  done < <(readelf --dynamic --wide -- "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p')
done

# The stand-in is for machines without a GPU, and does not travel.
bytes=$(find "$dir" -path "$dir/standin" -prune -o -type f -printf '%s\n' | awk '{ all += $1 } END { print all }')
if [ "$bytes" -ge "$limit_bytes" ]; then
  echo "it has $bytes bytes, and $limit_bytes is the limit; the largest files:"
  find "$dir" -type f -size +1M -printf '%s %P\n' | sort -n -r | head -n 10
  wrong=1
fi
echo "$((bytes / 1024)) KiB"
exit $wrong
