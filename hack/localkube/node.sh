# shellcheck shell=bash
# One node of a cluster, for hack/localkube/cluster: its network, cgroups, containerd, kubelet, and how it is lost. Everything
# here is called by `on`, which says which node is meant.

# on NUMBER COMMAND...: with the names and places of that node. The first one has the names without a number.
on() {
  local number=$1 suffix="" dir=$STATE; shift
  [ "$number" = 1 ] || { suffix=-$number; dir=$STATE/node-$number; }
  local node=node-$number netns=$NAME$suffix sock=$dir/containerd.sock
  "$@"
}

on_each() { local each; for each in $(seq "$NODES"); do on "$each" "$@"; done; }

inside() { nsenter --net="/var/run/netns/$netns" "$@"; }
images() { ctr -a "$sock" -n k8s.io images "$@"; }
pid_of() { cat "$STATE/pid/$1$suffix" 2>/dev/null; }

# .2 is this machine's end of the cable
node_ip() { if [ "$number" = 1 ]; then echo "$subnet.1"; else echo "$subnet.$((number + 1))"; fi; }

# start COMPONENT COMMAND...: in the node's network, detached from this shell, so that a caller's pipe can close. One
# processor for each, so that a burst of the API server does not take all of a small machine; and few garbage collections:
# one of the API server takes that processor for 0.1 s, every ten seconds by default.
start() {
  local component=$1 group=$netns-system root; shift
  [ -z "${REQUESTS[$component]+set}" ] || group=$netns/$component
  GOMAXPROCS=${GOMAXPROCS:-1} GOGC=${GOGC:-800} GOMEMLIMIT=${GOMEMLIMIT:-1GiB} \
    setsid nsenter --net="/var/run/netns/$netns" "$@" >"$STATE/log/$component$suffix.log" 2>&1 </dev/null &
  echo $! >"$STATE/pid/$component$suffix"
  for root in $(cpu_roots); do echo $! >"$root/$group/cgroup.procs"; done
}

# running COMPONENT: is the process that we started still there? (a pid alone may have been given to another one)
running() {
  local pid
  pid=$(pid_of "$1") && { tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null | grep -qF "$STATE"
}

# wait_for SECONDS WHAT COMPONENT COMMAND...: until COMMAND succeeds; fails at once when COMPONENT has died
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2 component=$3 log=$STATE/log/$3$suffix.log; shift 3
  until "$@" >/dev/null 2>&1; do
    running "$component" || { tail -n 20 "$log" >&2; die "$component has died, waiting for $what"; }
    [ "$SECONDS" -lt "$deadline" ] || { tail -n 20 "$log" >&2; die "no $what in time"; }
    sleep 0.1
  done
}

# The cable of the first node leads to this machine, which has an address in the pods' subnet; that of another one to the
# first node's bridge. So all pods are on one network, and reach one another by their addresses. The bridge is given a link
# address: otherwise it takes the lowest one of its ports, and who has learned that of a pod that goes reaches nobody for up
# to a minute.
network_up() {
  ip netns add "$netns"
  inside ip link set lo up
  # shellcheck disable=SC2046
  inside ip link add br0 address "$(printf '02:00:%02x:%02x:%02x:%02x' $(node_ip | tr . ' '))" type bridge
  inside ip addr add "$(node_ip)/24" dev br0
  inside ip link set br0 up
  inside ip route add default via "$subnet.2"  # kube-proxy and kubelet look for a default route
  inside sysctl -qw net.ipv4.ip_forward=1
  if [ "$number" = 1 ]; then
    ip link add "$NAME" type veth peer name uplink netns "$netns"
    ip addr add "$subnet.2/24" dev "$NAME"
    ip link set "$NAME" up
  else
    ip -n "$NAME" link add "$node" type veth peer name uplink netns "$netns"
    ip -n "$NAME" link set "$node" master br0 up
  fi
  inside ip link set uplink master br0 up
}

# Every directory of the cgroup tree in which a cgroup of ours lies: one per controller (v1), or the one hierarchy (v2).
cgroup_roots() { find /sys/fs/cgroup -maxdepth 1 -type d \( -path /sys/fs/cgroup -o -exec test -e {}/cgroup.procs \; \) -print; }

# Those of them that share out the processors.
cpu_roots() {
  local root
  for root in $(cgroup_roots); do ! [ -e "$root/$netns/cpu.shares" -o -e "$root/$netns/cpu.weight" ] || echo "$root"; done
}

# Shares of the processors as on a node that systemd, kubelet and kubeadm have set up: all system services together weigh
# 1024, all pods together 1024 for each processor, and among these each component what its pod requests. Without this
# every program of the cluster would weigh as much as all pods.
cgroups_up() {
  local root component shares
  for root in $(cgroup_roots); do
    [ -e "$root/cgroup.procs" ] || continue
    [ -e "$root/cgroup.subtree_control" ] && [ "$root" = /sys/fs/cgroup ] &&
      sed 's/\(\w*\) */+\1 /g' "$root/cgroup.controllers" >"$root/cgroup.subtree_control" 2>/dev/null || true
    mkdir -p "$root/$netns"
    [ "$(basename "$root")" != cpuset ] || for file in cpuset.cpus cpuset.mems; do cat "$root/$file" >"$root/$netns/$file"; done
  done
  for root in $(cpu_roots); do
    mkdir -p "$root/$netns-system"
    [ -e "$root/$netns/cpu.shares" ] || echo "+cpu" >"$root/$netns/cgroup.subtree_control"
    weigh "$root/$netns" $((1024 * $(nproc)))
    for component in "${!REQUESTS[@]}"; do
      mkdir -p "$root/$netns/$component"
      shares=$((REQUESTS[$component] * 1024 / 1000))
      weigh "$root/$netns/$component" $((shares > 2 ? shares : 2))
    done
  done
}

# weigh DIRECTORY SHARES: under cgroup v2 the weight that kubelet makes of them.
weigh() {
  if [ -e "$1/cpu.shares" ]; then echo "$2" >"$1/cpu.shares"; else echo $((1 + ($2 - 2) * 9999 / 262142)) >"$1/cpu.weight"; fi
}

# Each node has a containerd of its own: a node that is lost loses its containers.
# restrict_oom_score_adj: a host that does not give us CAP_SYS_RESOURCE lets runc not lower oom_score_adj, and containers
# would fail to start ("can't get final child's PID from pipe: EOF").
# A mount namespace of its own, which kubelet joins: all mounts of containers and volumes end with their processes. And on a
# host with both versions of cgroups crun refuses to work unless it sees the first one alone ("cgroups in hybrid mode not
# supported").
containerd_up() {
  local unified=/sys/fs/cgroup/unified size=$((240 / NODES))
  local first=$((10 + (number - 1) * size))
  mkdir -p "$dir"/{cni,kubelet,containerd,volumes}
  cat >"$dir/containerd.toml" <<END
version = 2
root = "$dir/containerd/root"
state = "$dir/containerd/state"
[grpc]
  address = "$sock"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "docker.io/library/pause:local"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "$RUNTIME"
END
  cat >"$dir/cni/10-bridge.conflist" <<END
{"cniVersion": "1.0.0", "name": "$NAME", "plugins": [
 {"type": "bridge", "bridge": "br0", "hairpinMode": true, "ipam": {"type": "host-local", "dataDir": "$dir/ipam",
  "ranges": [[{"subnet": "$subnet.0/24", "rangeStart": "$subnet.$first", "rangeEnd": "$subnet.$((first + size - 1))",
               "gateway": "$(node_ip)"}]],
  "routes": [{"dst": "0.0.0.0/0"}]}},
 {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
  start containerd unshare --mount sh -c "
    ! [ -e $unified/cgroup.controllers ] || mount -t tmpfs none $unified && exec containerd -c '$dir/containerd.toml'"
  wait_for 60 "containerd" containerd ctr -a "$sock" version
  pause_image | images import - >/dev/null
}

# The sandbox's image as an archive in Docker's format: one layer with one static binary, so that no registry is needed.
pause_image() {
  local work layer
  work=$(mktemp -d)
  tar -C "$(dirname "$PAUSE")" --owner=0 --group=0 --mode=0755 -cf "$work/layer.tar" pause
  layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
  echo "{\"architecture\": \"$(dpkg --print-architecture)\", \"os\": \"linux\", \"config\": {\"Entrypoint\": [\"/pause\"]}," \
    "\"rootfs\": {\"type\": \"layers\", \"diff_ids\": [\"sha256:$layer\"]}}" >"$work/config.json"
  echo '[{"Config": "config.json", "RepoTags": ["docker.io/library/pause:local"], "Layers": ["layer.tar"]}]' >"$work/manifest.json"
  tar -C "$work" -c manifest.json config.json layer.tar
  rm -rf "$work"
}

# failCgroupV1: kubelet refuses hosts with cgroup v1 otherwise. cgroupRoot: two kubelets of one host must not share a root,
# each kills the pods that it does not know. syncFrequency: so soon a mounted Secret that has changed is in its pod, where tests
# would wait for the minute that is the default.
kubelet_up() {
  local mounts ip several=()
  mounts=/proc/$(pid_of containerd)/ns/mnt ip=$(node_ip)
  [ "$NODES" = 1 ] || several=(--node-labels="topology.kubernetes.io/zone=zone-$number")
  cat >"$dir/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ip
failSwapOn: false
failCgroupV1: false
syncFrequency: 10s
cgroupDriver: cgroupfs
cgroupRoot: /$netns
enforceNodeAllocatable: []
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$sock
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: "100Mi"}
imageGCHighThresholdPercent: 100
podLogsDir: $dir/pods  # /var/log/pods is cleared of what its kubelet does not know, which other clusters have put there
END
  start kubelet nsenter --mount="$mounts" "$KUBE" kubelet --kubeconfig="$KUBECONFIG" \
    --config="$dir/kubelet.yaml" --hostname-override="$node" --node-ip="$ip" --root-dir="$dir/kubelet" "${several[@]}"
  # conntrack-max-per-core 0: the limit belongs to the machine and cannot be set from a network namespace. masquerade-all: all
  # pods are on one bridge, so an answer would go past the node, and come from another address than the one that was asked.
  start kube-proxy "$KUBE" kube-proxy --kubeconfig="$KUBECONFIG" --hostname-override="$node" --proxy-mode=nftables --masquerade-all \
    --cluster-cidr="$subnet.0/24" --conntrack-max-per-core=0
  # what it mounts has to be there for kubelet
  [ "$NODES" = 1 ] || several=(--node="$node")
  start provisioner nsenter --mount="$mounts" "$KUBE" provisioner --kubeconfig="$KUBECONFIG" --directory="$dir/volumes" "${several[@]}"
}

kubelet_is_up() {
  wait_for 90 "$node" kubelet kubectl get node "$node"
  wait_for 90 "Ready $node" kubelet kubectl wait --for=condition=Ready "node/$node" --timeout=1s
  wait_for 30 "services" kube-proxy inside nft list table ip kube-proxy
}

# What runs on the node is what is in its cgroups: its own programs with the shims of its containers, and the pods.
processes() {
  local root
  for root in $(cpu_roots); do
    find "$root/$netns" "$root/$netns-system" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done | sort -u
}

# As a loss of power: everything on it is killed at once, disks stay, memory does not.
power_off() {
  local pods pids
  pods=$(grep -o '/run/netns/cni-[0-9a-f-]*' "/proc/$(pid_of containerd)/mountinfo" 2>/dev/null | sort -u || true)
  while pids=$(processes) && [ -n "$pids" ]; do
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null || true
    sleep 0.1
  done
  rm -rf "$dir/containerd/state"
  # shellcheck disable=SC2086
  [ -z "$pods" ] || rm -f $pods  # what was mounted there went with the node's mount namespace
}

status_of_node() {
  local component
  for component; do
    if running "$component"; then say "$component$suffix runs (pid $(pid_of "$component"), log $STATE/log/$component$suffix.log)"
    else say "$component$suffix does not run"; fi
  done
}

# Until then nothing keeps pods of one bridge apart. It takes processor time whenever a pod comes or goes.
policies_on() {
  running network-policies || start network-policies "$KUBE" network-policies --kubeconfig="$KUBECONFIG" --node="$node"
  wait_for 30 "network policies" network-policies inside iptables -n -L KUBE-ROUTER-FORWARD
}

policies_off() {
  local deadline=$((SECONDS + 30))
  ! running network-policies || kill "$(pid_of network-policies)"
  while running network-policies; do
    [ "$SECONDS" -lt "$deadline" ] || die "network-policies does not end"
    sleep 0.1
  done
}

other_node() { [ "$number" != 1 ] || die "$node has the control plane"; }
cut_node() { other_node; inside ip link set uplink down; say "$node is cut off"; }
lose_node() { other_node; inside ip link set uplink down; power_off; say "$node is lost"; }

back_node() {
  inside ip link set uplink up
  if ! running containerd; then containerd_up; kubelet_up; fi
  kubelet_is_up
  say "$node is back"
}

node_down() {
  local root directory
  power_off
  if [ -e "/var/run/netns/$netns" ]; then ip netns del "$netns"; fi
  for root in $(cgroup_roots); do
    for directory in "$root/$netns" "$root/$netns-system"; do
      [ ! -d "$directory" ] || find "$directory" -depth -type d -exec rmdir {} \; 2>/dev/null || true
    done
  done
}
