package head

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/topology/machine"
)

// removedFile is a file in a head's directory that says which users and hosts were removed, beside the store: a
// backup may be older.
const removedFile = "removed.json"

func keepRemoved(dir string, all map[string]time.Time) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return machine.Replace(filepath.Join(dir, removedFile), 0o600, func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
}

// knownRemoved is what keepRemoved has written; none where it cannot be read.
func knownRemoved(dir string) (out map[string]time.Time) {
	text, err := os.ReadFile(filepath.Join(dir, removedFile))
	if err != nil || json.Unmarshal(text, &out) != nil {
		return nil
	}
	return out
}

// ShareRevoked lets all heads know what any of them does of certificates that were revoked, and of users and
// hosts that were removed. No head runs meanwhile.
func ShareRevoked(dirs []string) error {
	removed, serials := map[string]time.Time{}, map[string]bool{}
	var ids []*trust.Identity
	for _, dir := range dirs {
		id, err := trust.Load(dir, nil)
		if err != nil {
			return err
		}
		ids = append(ids, id)
		for _, s := range id.Gone() {
			serials[s] = true
		}
		for key, at := range knownRemoved(dir) { //lfvet:order the latest counts
			if removed[key].Before(at) {
				removed[key] = at
			}
		}
	}
	var err error
	for i, dir := range dirs {
		err = errors.Join(err, ids[i].Revoke(slices.Sorted(maps.Keys(serials))), keepRemoved(dir, removed))
	}
	return err
}
