package recordings

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// idleInfo are keys of meta/info.json that say nothing of what a set's samples are, with the reason.
var idleInfo = map[string]string{
	"codebase_version": "all versions 3 are read alike", "robot_type": "a name", "total_episodes": counted, "total_frames": counted, "total_tasks": counted, "total_videos": counted,
	"total_chunks": counted, "splits.train": "lerobot reads all episodes too, and a run's data.split parts them",
	"chunks_size":           "version 3 has each file's number in its tables",
	"data_files_size_in_mb": "how large files become that are written", "video_files_size_in_mb": "how large files become that are written",
	"video_path": "the set has no videos",
}

const (
	counted  = "the tables are counted"
	declared = "columns are read as Parquet declares them"
)

// TestInfoKeys: each leaf of a LeRobot set's meta/info.json, altered alone, moves what is read, is refused, or is
// listed with a reason.
func TestInfoKeys(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/lerobot3")))
	path := filepath.Join(dir, "meta", "info.json")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var info map[string]any
	require.NoError(t, json.Unmarshal(text, &info))
	base, err := infoSaid(dir)
	require.NoError(t, err)
	counts := map[string]int{}
	var walk func(at map[string]any, prefix string)
	walk = func(at map[string]any, prefix string) {
		for _, key := range slices.Sorted(maps.Keys(at)) {
			was := at[key]
			if inner, ok := was.(map[string]any); ok {
				walk(inner, prefix+key+".")
				continue
			}
			at[key] = otherInfo(was)
			text, err := json.Marshal(info)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(path, text, 0o600))
			said, err := infoSaid(dir)
			switch name := prefix + key; {
			case err != nil:
				counts["refused"]++
			case said != base:
				counts["moves"]++
			case idleInfo[name] != "" || strings.HasPrefix(name, "features.") && (idleFeature[key] != ""):
				counts["listed"]++
			default:
				t.Errorf("%s = %v is silent", name, at[key])
			}
			at[key] = was
		}
	}
	walk(info, "")
	t.Log(counts)
}

// idleFeature are those of a feature.
var idleFeature = map[string]string{"dtype": declared, "shape": declared, "names": "names of numbers"}

// otherInfo is another value.
func otherInfo(v any) any {
	switch x := v.(type) {
	case float64:
		return 2*x + 1
	case string:
		return x + "x"
	case []any:
		return append(slices.Clone(x), x...)
	}
	return "x"
}

// infoSaid is all that a set says: its rate, frames, cameras and statistics.
func infoSaid(dir string) (string, error) {
	l, err := OpenLeRobot(dir, dataset.Options{})
	if err != nil {
		return "", err
	}
	defer l.Close() //nolint:errcheck // it was read only
	stats, err := l.Stats()
	if err != nil {
		return "", err
	}
	s, err := dataset.Open(dir, dataset.Options{Horizon: 2})
	if err != nil {
		return "", err
	}
	defer s.Close() //nolint:errcheck // it was read only
	out := fmt.Sprint(l.Rate(), l.Len(), stats, l.Cameras(), l.Shape("observation.images.top"))
	for i := range s.Len() {
		d, err := s.Read(i)
		if err != nil {
			return "", err
		}
		b, _ := d.Part("json")
		out += string(b)
	}
	return out, nil
}
