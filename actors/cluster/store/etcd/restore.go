package etcd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/lfactor/lfactor/actors/cluster/store"
)

// bump is how far a restored state's revisions begin behind those of its backup: none is given twice,
// although what happened after the backup is lost. Epochs are such revisions.
const bump = 1 << 30

// restored is where a restored state waits for the next Open.
const restored = "restored"

// Restore makes a state from a backup in o.Dir. The next Open there takes it and puts the state that it
// replaces aside. Where there are several members, all of them need that of one backup before any is opened.
func Restore(backup string, o store.Options) error {
	to := filepath.Join(o.Dir, restored)
	name, own, initial := members(o)
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{SnapshotPath: backup, Name: name,
		OutputDataDir: to,
		PeerURLs:      []string{own}, InitialCluster: initial,
		InitialClusterToken: token,
		RevisionBump:        bump, MarkCompacted: true})
	if err != nil {
		return errors.Join(fmt.Errorf("%s is not a backup of a cluster, or is damaged: %w", backup, err),
			os.RemoveAll(to))
	}
	return nil
}

// adopt takes a restored state.
func adopt(dir string) error {
	from, data := filepath.Join(dir, restored), filepath.Join(dir, "etcd")
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.Rename(data, fmt.Sprintf("%s-before-%d", data, time.Now().Unix())); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(from, data)
}
