package clitest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// ChildrenOf lists the processes whose parent is pid, where /proc tells.
func ChildrenOf(pid int) (out []int) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for _, s := range stats {
		text, err := os.ReadFile(s)
		if err != nil {
			continue // it has ended
		}
		var id, parent int
		var state string
		after := string(text[bytes.LastIndexByte(text, ')')+1:])
		if _, err := fmt.Sscan(after, &state, &parent); err == nil && parent == pid {
			if _, err := fmt.Sscanf(string(text), "%d", &id); err == nil {
				out = append(out, id)
			}
		}
	}
	return out
}
