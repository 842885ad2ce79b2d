package etcd

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/lfactor/lfactor/actors/cluster/store"
)

// bump is how far a restored state's revisions begin behind those of its backup, and behind all terms that are
// known: none is given twice, although what happened after the backup is lost, and agents refuse an older
// term. Epochs are such revisions.
const bump = 1 << 30

// restored is where a restored state waits for the next Open.
const restored = "restored"

// Restore makes a state from a backup in o.Dir, whose revisions begin behind above. The next Open there takes it
// and puts the state that it replaces aside. Where there are several members, all of them need that of one
// backup, with one above, before any is opened. After an error, what waited there before waits still.
func Restore(backup string, o store.Options, above int64) error {
	to := filepath.Join(o.Dir, restored)
	name, own, initial := members(o)
	fresh := to + ".new"
	bad := func(err error) error {
		return errors.Join(fmt.Errorf("%s is not a backup of a cluster, or is damaged: %w", backup, err),
			os.RemoveAll(fresh))
	}
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	m := snapshot.NewV3(zap.NewNop())
	if err := whole(backup); err != nil {
		return bad(err)
	}
	s, err := m.Status(backup)
	if err != nil {
		return bad(err)
	}
	err = m.Restore(snapshot.RestoreConfig{SnapshotPath: backup, Name: name, OutputDataDir: fresh,
		PeerURLs: []string{own}, InitialCluster: initial, InitialClusterToken: token,
		RevisionBump: uint64(bump + max(0, above-s.Revision)), MarkCompacted: true})
	if err != nil {
		return bad(err)
	}
	return errors.Join(os.RemoveAll(to), os.Rename(fresh, to))
}

// whole holds a backup to the hash at its end: what reads it otherwise maps it into memory and believes it.
func whole(backup string) error {
	f, err := os.Open(backup)
	if err != nil {
		return err
	}
	defer f.Close()
	i, err := f.Stat()
	if err != nil {
		return err
	}
	size, sum := i.Size()-sha256.Size, sha256.New()
	if size <= 0 || size%512 != 0 {
		return errors.New("it has no hash at its end")
	}
	if _, err := io.CopyN(sum, f, size); err != nil {
		return err
	}
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(f, want); err != nil {
		return err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return errors.New("its hash is another")
	}
	return nil
}

// adopt takes a restored state. Of those that it has replaced the newest is kept.
func adopt(dir string) error {
	from, data := filepath.Join(dir, restored), filepath.Join(dir, "etcd")
	if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	old, err := filepath.Glob(data + "-before-*")
	if err != nil {
		return err
	}
	before := fmt.Sprintf("%s-before-%d", data, time.Now().UnixNano())
	switch err := os.Rename(data, before); {
	case errors.Is(err, fs.ErrNotExist): // what was replaced before is all there is
		old = nil
	case err != nil:
		return err
	}
	if err := os.Rename(from, data); err != nil {
		return err
	}
	for _, name := range old {
		err = errors.Join(err, os.RemoveAll(name))
	}
	return err
}
