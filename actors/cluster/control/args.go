package control

import (
	"fmt"
	"strings"
)

// UpFile is a file that head and agent write into their directories when they serve: their process id.
const UpFile = "up"

// DownFile is a file in the head's directory that says that the cluster is being ended: nobody starts anything again.
const DownFile = "down"

// LocalHead is a head on an agent's machine, which the agent starts again when it has ended.
type LocalHead struct {
	Dir    string // absolute
	Listen string // address that it listens at
}

// String is the value of the agent's flag for it.
func (l LocalHead) String() string { return l.Listen + l.Dir }

// ParseLocalHead reads what String has made.
func ParseLocalHead(text string) (LocalHead, error) {
	i := strings.IndexByte(text, '/')
	if i <= 0 {
		return LocalHead{}, fmt.Errorf("%q is not an address with a directory behind it", text)
	}
	return LocalHead{Dir: text[i:], Listen: text[:i]}, nil
}

// AgentArgs are the arguments of lfactor that run a host's agent. Heads are the addresses of all heads, and
// local those on its machine.
func AgentArgs(dir, addr string, heads []string, local ...LocalHead) []string {
	args := []string{"cluster", "agent", "--dir", dir, "--addr", addr, "--head", strings.Join(heads, ",")}
	for _, l := range local {
		args = append(args, "--head-dir", l.String())
	}
	return args
}

// HeadArgs are the arguments of lfactor that run a head.
func HeadArgs(dir, listen string) []string {
	return []string{"cluster", "head", "--dir", dir, "--listen", listen}
}
