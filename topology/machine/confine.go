package machine

import "path/filepath"

// Confinement is what a program may touch that somebody else has asked for. The kernel holds it, and all
// that it starts, to that.
type Confinement struct {
	// UID and GID are whom the program becomes; 0 is who starts it.
	UID int `json:"uid,omitempty"`
	GID int `json:"gid,omitempty"`
	// Write are the directories that it may change, Read those, and files, that it may see beside the
	// system's own; what is missing is left out.
	Write []string `json:"write,omitempty"`
	Read  []string `json:"read,omitempty"`
	Dir   string   `json:"dir"` // that it begins in, made if it is missing
}

// systemRead are what programs need of a system, systemUse the devices that they may use.
var (
	systemRead = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/etc", "/proc", "/sys"}
	systemUse  = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/nvidia*",
		"/dev/dri", "/dev/kfd", "/dev/xpu*", "/dev/infiniband"}
)

// Outermost are directories that lie in no other of them: one that lies in another may be replaced by whoever
// may write there, and is granted with it.
func Outermost(dirs []string) (out []string) {
	for _, d := range dirs {
		inner := false
		for _, other := range dirs {
			rel, err := filepath.Rel(other, d)
			inner = inner || err == nil && rel != "." && filepath.IsLocal(rel)
		}
		if !inner {
			out = append(out, d)
		}
	}
	return out
}
