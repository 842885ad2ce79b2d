package cli

import (
	"runtime/debug"
	"slices"
)

// release is the version that cmd/lfrelease links into programs, whose bytes do not follow from the state of a checkout.
var release string

// Version is that of a release, the module's, or the commit of a build from a checkout.
func Version() string {
	if release != "" {
		return release
	}
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
