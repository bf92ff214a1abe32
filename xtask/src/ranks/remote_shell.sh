# What mpirun calls in the place of ssh, as `remote_shell.sh NAMESPACE HOST COMMAND`: the command runs in the namespace, under its host name.
namespace=$1
shift 2
exec ip netns exec "$namespace" unshare --uts sh -c 'hostname "$0"; eval "$*"' "$namespace" "$@"
