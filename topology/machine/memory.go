package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// share is the part of the memory of a machine that ranks' tensors may fill: programs, the Go heap, buffers
// of files and the system need the rest.
const share = 0.9

// MemoryShare is the budget of each of ranks that share this machine: nine tenths of its memory, or of what
// its control groups permit, in equal parts. It is 0 where the system says neither.
func MemoryShare(ranks int) int64 {
	return Fillable(MemoryLimit("/")) / int64(max(1, ranks))
}

// Fillable is how much of so many bytes of memory ranks' tensors may fill.
func Fillable(bytes int64) int64 { return int64(share * float64(bytes)) }

// MemoryLimit is the memory that this process may use, in bytes: the machine's, or less where a control group that it
// is in has a limit. Files are looked up below root, which is / but in tests. It is 0 where nothing is known.
func MemoryLimit(root string) int64 {
	least := MachineMemory(root)
	for mount, group := range memoryGroups(root, "self") {
		for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
			least = smaller(least, limitOf(root, mount, group, file))
		}
	}
	return least
}

// memoryGroups are the control groups of a process ("self" or a number) that have to do with memory, by where their kind is
// mounted: those of the second version have one tree, and files of other names.
func memoryGroups(root, process string) map[string]string {
	text, err := os.ReadFile(filepath.Join(root, "proc", process, "cgroup"))
	if err != nil {
		return nil
	}
	groups := map[string]string{}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0":
			groups["sys/fs/cgroup"], groups["sys/fs/cgroup/unified"] = parts[2], parts[2]
		case strings.Contains(","+parts[1]+",", ",memory,"):
			groups["sys/fs/cgroup/memory"] = parts[2]
		}
	}
	return groups
}

// MachineMemory is the machine's memory in bytes, 0 where the system does not say. Files are looked up below root.
func MachineMemory(root string) int64 { return meminfo(filepath.Join(root, "proc/meminfo")) }

// limitOf is the smallest limit of a control group and those around it, 0 for none.
func limitOf(root, mount, group, file string) (least int64) {
	for dir := filepath.Clean("/" + group); ; dir = filepath.Dir(dir) {
		if text, err := os.ReadFile(filepath.Join(root, mount, dir, file)); err == nil {
			// "max" is not a limit
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
				least = smaller(least, n)
			}
		}
		if dir == "/" {
			return least
		}
	}
}

// smaller is the lesser of two limits, of which 0 is none.
func smaller(a, b int64) int64 {
	if a <= 0 || b > 0 && b < a {
		return b
	}
	return a
}

// meminfo is the machine's memory, 0 where the system does not say.
func meminfo(file string) int64 {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	var kb int64
	if _, err := fmt.Sscanf(string(text), "MemTotal: %d kB", &kb); err != nil {
		return 0
	}
	return kb << 10
}
