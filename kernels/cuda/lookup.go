//go:build cuda

package cuda

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"
)

// lookup says where one of NVIDIA's libraries beside the driver is looked for.
type lookup struct {
	variable string   // of the environment: a path, or "none"
	names    []string // the best first
	wheels   []string // its folders in packages of pip, below nvidia/
	pip      string   // what brings it; empty where NVIDIA's driver does
}

// off reports whether the environment leaves the library out.
func (k lookup) off() bool { return strings.EqualFold(os.Getenv(k.variable), "none") }

// missing says, behind what is done without it, why the library is not there, and what brings it.
func (k lookup) missing() string {
	if k.off() {
		return ", as " + k.variable + " says"
	}
	from := "pip install " + k.pip
	if k.pip == "" {
		from = "it comes with NVIDIA's driver"
	}
	return ": no " + strings.Join(k.names, " or ") + " was found; " + from + ", or name the library in " + k.variable
}

// places are paths and names to try, in order: the system's loader, CUDA's folder, and the packages of the
// Python that is active or first on the path.
func (k lookup) places() []string {
	dirs := []string{"", "/usr/local/cuda/lib64"}
	if k.pip == "" {
		dirs = append(dirs, driverFolders...)
	}
	for _, root := range pythons() {
		for _, w := range k.wheels {
			// the pattern is a good one
			found, _ := filepath.Glob(filepath.Join(root, "lib", "python3*", "site-packages", "nvidia", w))
			dirs = append(dirs, found...)
		}
	}
	var all []string
	for _, dir := range dirs {
		for _, name := range k.names {
			all = append(all, filepath.Join(dir, name))
		}
	}
	return all
}

// pythons are the roots of Python installations whose packages are looked at.
func pythons() (roots []string) {
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		roots = append(roots, v)
	}
	if p, err := exec.LookPath("python3"); err == nil {
		roots = append(roots, filepath.Dir(filepath.Dir(p)))
	}
	return roots
}

// find loads the library that the environment names, or the first of the machine's that can be used;
// without one, or with "none", it gives nil. That the one that was named cannot be used is an error; why
// the machine's cannot be used is unfit, nil where it has none.
func find[L any](k lookup, load func(path string) (*L, error)) (l *L, unfit, err error) {
	if k.off() {
		return nil, nil, nil
	}
	if p := os.Getenv(k.variable); p != "" {
		l, err = load(p)
		return l, nil, err
	}
	for _, p := range k.places() {
		l, err := load(p)
		if err == nil {
			return l, nil, nil
		}
		var absent *missingError
		if !errors.As(err, &absent) && unfit == nil {
			unfit = err
		}
	}
	return nil, unfit, nil
}

// describeLibrary says in a line what does a work: the library, as with tells, or without it the project's own.
func describeLibrary[L any](k lookup, load func(string) (*L, error), own string, with func(*L) string) string {
	switch l, unfit, err := find(k, load); {
	case err != nil:
		return own + ": " + err.Error()
	case l != nil:
		return with(l)
	case unfit != nil:
		return own + ": " + unfit.Error()
	}
	return own + k.missing()
}

// loads opens the library for others that look for it by its name, whatever the environment says of its
// use, and reports whether it is there.
func (k lookup) loads() bool {
	places := k.places()
	if p := os.Getenv(k.variable); p != "" && !k.off() {
		places = []string{p}
	}
	for _, p := range places {
		if _, err := purego.Dlopen(p, purego.RTLD_NOW|purego.RTLD_GLOBAL); err == nil {
			return true
		}
	}
	return false
}
