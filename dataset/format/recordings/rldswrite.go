package recordings

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// rldsDocument is the feature of an episode that this program wrote that has it as it was.
const rldsDocument = "episode_metadata/document"

// writeRLDS writes episodes as a data set of RLDS: their actions as steps, and beside them the episodes as they are.
func writeRLDS(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
	width := 0
	var file []byte
	for _, d := range docs {
		b, _ := d.Part("json")
		var e lerobotEpisode
		if err := json.Unmarshal(b, &e); err != nil {
			return "", o, err
		}
		var actions []byte
		for _, f := range e.Frames {
			v, why := numbers(f, "action")
			if why != "" || width > 0 && len(v) != width {
				return "", o, fmt.Errorf("%s: actions of %d numbers, want %d: %s", d.Key, len(v), width, why)
			}
			width = len(v)
			for _, x := range v {
				actions = binary.LittleEndian.AppendUint32(actions, math.Float32bits(float32(x)))
			}
		}
		example := featureOf(nil, "steps/action", 2, actions)
		example = field(nil, 1, featureOf(example, rldsDocument, 1, b))
		file = appendRecord(file, example)
	}
	tensor := map[string]any{"dtype": "float32", "shape": map[string]any{"dimensions": []string{fmt.Sprint(width)}}}
	dict := func(features map[string]any) map[string]any {
		return map[string]any{"featuresDict": map[string]any{"features": features}}
	}
	b, err := json.MarshalIndent(dict(map[string]any{"steps": map[string]any{"sequence": map[string]any{
		"feature": dict(map[string]any{"action": map[string]any{"tensor": tensor}})}}}), "", " ")
	if err != nil {
		return "", o, err
	}
	if err := os.WriteFile(filepath.Join(dir, "features.json"), b, 0o644); err != nil {
		return "", o, err
	}
	return dir, o, os.WriteFile(filepath.Join(dir, "episodes-train.tfrecord-00000-of-00001"), file, 0o644)
}

// field appends a field of bytes to a message.
func field(b []byte, n int, payload []byte) []byte {
	b = binary.AppendUvarint(b, uint64(n)<<3|2)
	return append(binary.AppendUvarint(b, uint64(len(payload))), payload...)
}

// featureOf appends a feature with one list, of a kind, to an example's.
func featureOf(b []byte, name string, kind int, list []byte) []byte {
	entry := field(field(nil, 1, []byte(name)), 2, field(nil, kind, field(nil, 1, list)))
	return field(b, 1, entry)
}

// appendRecord appends a record to a file.
func appendRecord(b, record []byte) []byte {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(record)))
	b = append(b, head...)
	b = binary.LittleEndian.AppendUint32(b, format.Masked(head))
	return binary.LittleEndian.AppendUint32(append(b, record...), format.Masked(record))
}
