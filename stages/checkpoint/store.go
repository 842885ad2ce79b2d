package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNone says that a root has no checkpoint.
var ErrNone = errors.New("no checkpoint here")

// Entry is one checkpoint of a root.
type Entry struct {
	Step   int64
	Path   string
	Latest bool      // latest names it
	Bytes  int64     // of its shards
	Saved  time.Time // when its manifest was written
	Err    error     // what is wrong with its manifest, or nil; Open and Verify look closer
}

var stepPattern = regexp.MustCompile(`^step-(\d{8,18})$`)

// stepNumber is the inverse of stepName, -1 for other names.
func stepNumber(name string) int64 {
	match := stepPattern.FindStringSubmatch(name)
	if match == nil {
		return -1
	}
	n, err := strconv.ParseInt(match[1], 10, 64)
	if err != nil {
		panic(fmt.Sprintf("checkpoint: %q: %v", name, err)) // at most 18 digits fit
	}
	return n
}

// latestStep returns the name of the directory that latest names; ErrNone if there is no such file.
func latestStep(root string) (string, error) {
	r, err := os.OpenRoot(root)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", root, ErrNone)
	}
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := ReadSmall(r, latestName, 1<<10)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", root, ErrNone)
	}
	if err != nil {
		return "", err
	}
	name := strings.TrimSpace(string(text))
	if !stepPattern.MatchString(name) {
		return "", &Error{File: filepath.Join(root, latestName), Fault: Malformed,
			Why: fmt.Sprintf("names %q, which is not a step", name), Try: "write the step to go on from into it"}
	}
	return name, nil
}

// Latest returns the path of the checkpoint that latest names; ErrNone if there is none.
func Latest(root string) (string, error) {
	name, err := latestStep(root)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, name), nil
}

// openLatest opens the step that "latest" names. If that is gone, the error says how to choose another.
func openLatest(root string) (*Reader, error) {
	dir, err := Latest(root)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, &Error{File: dir, Fault: Missing, Why: "latest names it",
			Try: "write the step to go on from into " + filepath.Join(root, latestName)}
	}
	return Open(dir)
}

// List returns the checkpoints of a root, newest step first. A root that does not exist has none.
func List(root string) ([]Entry, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	latest, _ := latestStep(root) // one that cannot be read names none of them
	var out []Entry
	for _, e := range entries {
		step := stepNumber(e.Name())
		if step < 0 {
			continue
		}
		if i, err := os.Stat(filepath.Join(root, e.Name())); err != nil || !i.IsDir() { // or a link to one
			continue
		}
		out = append(out, inspect(Entry{Step: step, Path: filepath.Join(root, e.Name()), Latest: e.Name() == latest}))
	}
	slices.SortFunc(out, func(a, b Entry) int { return sign(b.Step - a.Step) })
	return out, nil
}

// inspect fills in what the manifest says.
func inspect(e Entry) Entry {
	root, err := os.OpenRoot(e.Path)
	if err != nil {
		e.Err = err
		return e
	}
	defer root.Close()
	m, err := readManifest(root)
	if err != nil {
		e.Err = err
		return e
	}
	for _, s := range m.Files {
		e.Bytes += s.Bytes
	}
	if info, err := root.Stat(ManifestName); err == nil {
		e.Saved = info.ModTime()
	}
	return e
}

// Recover opens the newest checkpoint that is whole, hashes included: the one that latest names if it is,
// else the next older step. Steps newer than latest are passed over: they were never reported durable. The
// second result says what was wrong with those that were tried. ErrNone if none is left.
func Recover(root string) (*Reader, []error, error) {
	entries, err := List(root)
	if err != nil {
		return nil, nil, err
	}
	var faults []error
	newest := int64(math.MaxInt64)
	switch latest, err := latestStep(root); {
	case errors.Is(err, ErrNone):
		return nil, nil, err
	case err != nil:
		faults = append(faults, err)
	default:
		newest = stepNumber(latest)
	}
	for _, e := range entries {
		if e.Step > newest {
			continue
		}
		r, err := openVerified(e.Path)
		if err == nil {
			return r, faults, nil
		}
		faults = append(faults, err)
	}
	return nil, faults, fmt.Errorf("%s: %w", root, ErrNone)
}

// openVerified opens a step only if the hashes of all its files are right.
func openVerified(dir string) (*Reader, error) {
	r, err := Open(dir)
	if err != nil {
		return nil, err
	}
	if err := r.Verify(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Rewind makes latest name an older step, from which the run is to go on. Newer steps stay until they are
// saved again or pruned.
func Rewind(fs FS, root string, step int64) error {
	r, err := openVerified(StepDir(root, step))
	if err != nil {
		return err
	}
	if err := r.Close(); err != nil {
		return err
	}
	return replaceFile(fs, filepath.Join(root, latestName), []byte(stepName(step)+"\n"))
}

// Prune removes all but the newest keep checkpoints, and those of the steps of also, and returns the paths removed. The
// one that latest names always stays; if latest cannot be read, nothing is removed.
func Prune(fs FS, root string, keep int, also ...int64) ([]string, error) {
	if keep < 1 {
		return nil, fmt.Errorf("%s: keep %d: at least one checkpoint is kept", root, keep)
	}
	entries, err := List(root)
	if err != nil {
		return nil, err
	}
	if _, err := latestStep(root); err != nil && !errors.Is(err, ErrNone) {
		return nil, err
	}
	var removed []string
	for i, e := range entries {
		if i < keep || e.Latest || slices.Contains(also, e.Step) {
			continue
		}
		if err := removeStep(fs, root, e.Path); err != nil {
			return removed, err
		}
		removed = append(removed, e.Path)
	}
	return removed, nil
}

// removeStep renames first: a half removed step must not look like one.
func removeStep(fs FS, root, dir string) error {
	old := filepath.Join(root, oldPrefix+filepath.Base(dir))
	if err := fs.RemoveAll(old); err != nil {
		return err
	}
	if err := fs.Rename(dir, old); err != nil {
		return err
	}
	if err := fs.SyncDir(root); err != nil {
		return err
	}
	return fs.RemoveAll(old)
}
