package cli

import (
	"runtime/debug"
	"slices"
)

// Version is the module's version, or the commit of a build from a checkout.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(12, len(s.Value))]
		}
	}
	return "devel"
}

// SameVersion says whether two programs may work together as parts of one lfactor. Builds that do not know their
// version, such as those of `go run`, work with any.
func SameVersion(a, b string) bool {
	none := []string{"devel", "unknown"}
	return a == b || slices.Contains(none, a) || slices.Contains(none, b)
}
