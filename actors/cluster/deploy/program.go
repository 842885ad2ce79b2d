package deploy

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// headName is the program that serves as a head. It has the store, whose code is a third of a build and of a
// binary, and which nobody else needs.
const headName = "lfactor-head"

// headModule is its package.
const headModule = "github.com/lfactor/lfactor/cmd/" + headName

// HeadProgram finds the program that serves as a head for self, an lfactor: beside it under its own name with -head
// behind, or as lfactor-head; in PATH; or where MakeHead has put it. The error, with exit.Usage, says how to get one.
func HeadProgram(self string) (string, error) {
	for _, name := range []string{self + "-head", filepath.Join(filepath.Dir(self), headName)} {
		if machine.Exists(name) {
			return name, nil
		}
	}
	if name, err := exec.LookPath(headName); err == nil {
		return name, nil
	}
	name, err := madeHead(self)
	if err == nil && !machine.Exists(name) {
		err = os.ErrNotExist
	}
	if err != nil {
		return "", exit.Usagef("%s, which serves as the head of a cluster, is neither beside %s nor in PATH: "+
			"`go install %s@latest`, or put the one that came with lfactor there", headName, self, headModule)
	}
	return name, nil
}

// madeHead is where MakeHead puts the program for self.
func madeHead(self string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash, err := machine.HashFile(self)
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "lfactor", "heads", hash[:16], headName), nil
}

// MakeHead sees to it that HeadProgram finds one: where it does not, in a checkout of lfactor with a go
// command, as where lfactor was started by `go run`, it is built from there.
func MakeHead(self string, say func(format string, a ...any)) (string, error) {
	name, missing := HeadProgram(self)
	if missing == nil {
		return name, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", missing
	}
	if out, err := exec.Command("go", "list", "-m").Output(); err != nil ||
		!strings.HasPrefix(headModule, strings.TrimSpace(string(out))+"/") {
		return "", missing // not in a checkout
	}
	name, err := madeHead(self)
	if err != nil {
		return "", errors.Join(missing, err)
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return "", err
	}
	say("building %s, which serves as the head", headName)
	part := fmt.Sprintf("%s.%d", name, os.Getpid())
	if out, err := exec.Command("go", "build", "-o", part, headModule).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build %s: %w: %s", headModule, err, strings.TrimSpace(string(out)))
	}
	return name, os.Rename(part, name)
}
