# To be sourced. meso_packages NAME...: installs those of the Debian or Ubuntu packages that are missing, with apt.
# Without root and sudo it says which are missing and exits 2. When all are installed it does nothing.
meso_packages() {
  local installed name log
  local missing=() as_root=()
  installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p' || true)
  for name in "$@"; do
    [[ $'\n'$installed$'\n' == *$'\n'$name$'\n'* ]] || missing+=("$name")
  done
  if ((${#missing[@]} == 0)); then
    return 0
  fi

  if ! command -v apt-get >/dev/null; then
    echo "Missing packages (Debian's names): ${missing[*]}. There is no apt-get here to install them with." >&2
    exit 2
  elif [[ $(id -u) == 0 ]]; then
    as_root=(env)
  elif command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [[ -t 0 ]]; }; then
    as_root=(sudo env)
  else
    echo "Missing packages: ${missing[*]}. As root: apt-get install ${missing[*]}" >&2
    exit 2
  fi

  echo "Installing ${missing[*]}"
  log=$(mktemp)
  as_root+=(DEBIAN_FRONTEND=noninteractive apt-get -q)
  "${as_root[@]}" update >"$log" 2>&1 || true # an index that is there already may do
  if ! "${as_root[@]}" install -y --no-install-recommends "${missing[@]}" >>"$log" 2>&1; then
    cat "$log" >&2
    rm -f "$log"
    echo "apt-get could not install: ${missing[*]}" >&2
    exit 2
  fi
  rm -f "$log"
}
