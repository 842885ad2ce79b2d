package tables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"

	"github.com/lfactor/lfactor/actors"
)

// Message is a row of messages.parquet: a message that lfactor train --capture has kept. Its tensors stay in the
// Arrow streams of the folder edges, whose rows have the same numbers.
type Message struct {
	Edge    string `parquet:"edge,dict"`   // rank0-rank1
	Number  int64  `parquet:"number"`      // on its edge, from 1
	Kind    string `parquet:"kind,dict"`   // activation, cotangent, credit, part, …
	Epoch   int64  `parquet:"epoch"`       // of membership
	Step    int64  `parquet:"step"`        //
	Stage   int32  `parquet:"stage"`       // of the action that it is for
	Micro   int32  `parquet:"microbatch"`  // of that action
	Chunk   int32  `parquet:"chunk"`       // of that action
	Segment int32  `parquet:"segment"`     // of that action
	File    string `parquet:"stream,dict"` // below the folder edges
}

func messages(dir string, row func(Message) error) error {
	root := filepath.Join(dir, "edges")
	files, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		edge, _, ok := strings.Cut(strings.TrimSuffix(f.Name(), ".arrows"), "-again")
		if ok || strings.HasSuffix(f.Name(), ".arrows") {
			if !ok {
				edge = edge[:strings.LastIndexByte(edge, '-')]
			}
			if err := stream(filepath.Join(root, f.Name()), edge, f.Name(), row); err != nil {
				return fmt.Errorf("%s: %w", f.Name(), err)
			}
		}
	}
	return nil
}

// stream reads the messages of one file. One that ends in the middle, as that of a run that is under way,
// gives what it has.
func stream(path, edge, name string, row func(Message) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was read only
	r, err := ipc.NewReader(f)
	if err != nil {
		return nil //nolint:nilerr // a run that was ended has not written its schema
	}
	defer r.Release()
	for r.Next() {
		b := r.Record()
		column := func(name string) (int, error) {
			i := b.Schema().FieldIndices(name)
			if len(i) != 1 {
				return 0, fmt.Errorf("it has no column %q: it is no stream of captured messages", name)
			}
			return i[0], nil
		}
		at := map[string]int{}
		for _, name := range []string{"kind", "epoch", "seq", "step", "stage", "micro", "chunk", "segment"} {
			if at[name], err = column(name); err != nil {
				return err
			}
		}
		for i := range int(b.NumRows()) {
			if err := row(Message{Edge: edge, File: name, Number: int64(b.Column(at["seq"]).(*array.Uint64).Value(i)),
				Kind:    actors.Kind(b.Column(at["kind"]).(*array.Uint8).Value(i)).Name(),
				Epoch:   int64(b.Column(at["epoch"]).(*array.Uint32).Value(i)),
				Step:    b.Column(at["step"]).(*array.Int64).Value(i),
				Stage:   int32(b.Column(at["stage"]).(*array.Int16).Value(i)),
				Micro:   b.Column(at["micro"]).(*array.Int32).Value(i),
				Chunk:   int32(b.Column(at["chunk"]).(*array.Int16).Value(i)),
				Segment: b.Column(at["segment"]).(*array.Int32).Value(i)}); err != nil {
				return err
			}
		}
	}
	return nil // what is cut off was never whole
}
