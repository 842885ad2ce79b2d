package serve

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/topology/machine"
)

// locked is what clients are told who do not show a key.
func locked(message string) error {
	return fault{http.StatusForbidden, "permission_error", message, "", "wrong_key"}
}

// keyFile has the hash of the key that the saved adapters of a name were made with, beside their folder. No
// adapter has its name, since those do not begin with a dot.
func (o *TrainOptions) keyFile(name string) string { return filepath.Join(o.Dir, "."+name+".key") }

// hashed is a key as it is saved: a salt and SHA-256 of both, in hexadecimal digits.
func hashed(salt []byte, key string) string {
	h := sha256.Sum256(append(salt[:len(salt):len(salt)], key...))
	return hex.EncodeToString(salt) + " " + hex.EncodeToString(h[:])
}

// unlinked refuses a saved adapter, or a place for one, that is a link to elsewhere or has one in it: what is
// saved and loaded lies in the folder itself.
func (o *TrainOptions) unlinked(owner, label string) error {
	at := filepath.Join(o.Dir, owner)
	for _, path := range []string{o.keyFile(owner), at, filepath.Join(at, "."+label+".partial")} {
		if err := linked(path); err != nil {
			return err
		}
	}
	err := filepath.WalkDir(filepath.Join(at, label), func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return linked(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// linked is the error of a path that is a link.
func linked(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return broke("the folder of adapters cannot be read: %v", err)
	case info.Mode()&fs.ModeSymlink != 0:
		return bad("label", "%s in the folder of adapters is a link, and none is followed", filepath.Base(path))
	}
	return nil
}

// opens refuses keys that are not the one with which adapters of a name were saved, whether there is such an
// adapter now or not. Saved adapters of no key are open to all.
func (o *TrainOptions) opens(name, key string) error {
	if o.Dir == "" {
		return nil
	}
	b, err := os.ReadFile(o.keyFile(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return broke("the key of saved adapters was not read: %v", err)
	}
	kept := strings.TrimSpace(string(b))
	digits, _, _ := strings.Cut(kept, " ")
	salt, err := hex.DecodeString(digits)
	if err != nil || len(kept) != len(hashed(salt, "")) {
		return broke("%s is damaged: remove it to open the saved adapters of %s to all", o.keyFile(name), name)
	}
	if subtle.ConstantTimeCompare([]byte(hashed(salt, key)), []byte(kept)) != 1 {
		return locked(fmt.Sprintf("adapters %q were saved with a key, and this is not it", name))
	}
	return nil
}

// lock keeps the hash of a name's key, if there is none yet; of no key there is nothing to keep.
func (o *TrainOptions) lock(name, key string) error {
	at := o.keyFile(name)
	if _, err := os.Stat(at); key == "" || !errors.Is(err, fs.ErrNotExist) {
		return nil // folder has compared it
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // it never fails
	return machine.ReplaceBytes(at, 0o600, []byte(hashed(salt, key)+"\n"))
}
