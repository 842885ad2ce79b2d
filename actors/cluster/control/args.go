package control

import "strings"

// UpFile is a file that head and agent write into their directories when they serve: their process id.
const UpFile = "up"

// DownFile is a file in the head's directory that says that the cluster is being ended: nobody starts
// anything again.
const DownFile = "down"

// AgentArgs are the arguments of lfactor that run a host's agent. It starts the head again whose
// directory is headDir, if that is on its machine; "" for none.
func AgentArgs(dir, addr string, heads []string, headDir string) []string {
	args := []string{"cluster", "agent", "--dir", dir, "--addr", addr, "--head", strings.Join(heads, ",")}
	if headDir != "" {
		args = append(args, "--head-dir", headDir)
	}
	return args
}

// HeadArgs are the arguments of lfactor that run a head.
func HeadArgs(dir, listen string) []string {
	return []string{"cluster", "head", "--dir", dir, "--listen", listen}
}
