package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// packState is where the writing of packed shards stands after a whole shard.
type packState struct {
	Settings string `json:"settings"`
	Row      int    `json:"row"` // the next of the plan
	Shards   int    `json:"shards"`
	Done     bool   `json:"done"`
}

// write writes the rows of a plan as shards.
func (p *packing) write(ctx context.Context, rows []packRow) error {
	if len(rows) == 0 {
		return fmt.Errorf("%s: %w", p.Source.Name(), dataset.ErrNoTokens)
	}
	state := packState{Settings: p.settings}
	b, err := os.ReadFile(filepath.Join(p.OutputDir, packStateFile))
	if err == nil {
		err = json.Unmarshal(b, &state)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w; delete the folder to start again", filepath.Join(p.OutputDir, packStateFile), err)
	}
	for !state.Done && state.Row < len(rows) {
		if err := p.shard(ctx, rows, &state); err != nil {
			return err
		}
	}
	p.report.Shards = state.Shards
	if state.Done {
		return nil
	}
	plan := format.EnergonPlan{Meta: format.CrudeMeta(p.PackedType)}
	for i := range state.Shards {
		plan.Shards = append(plan.Shards, fmt.Sprintf("pretrain-%d.tar", i))
	}
	if _, err := format.PrepareEnergon(p.OutputDir, plan); err != nil {
		return err
	}
	state.Done = true
	return p.save(&state)
}

// save writes the state from which the writing can go on.
func (p *packing) save(s *packState) error {
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return format.WriteOwn(filepath.Join(p.OutputDir, packStateFile), append(b, '\n'))
}

// shard writes the next shard, gives it its name and moves the state behind it.
func (p *packing) shard(ctx context.Context, rows []packRow, s *packState) error {
	path := filepath.Join(p.OutputDir, fmt.Sprintf("pretrain-%d.tar", s.Shards))
	w, err := format.CreateShard(path + ".partial")
	if err != nil {
		return err
	}
	size, row := int64(0), s.Row
	last := min(len(rows), s.Row+int(min(p.MaxCount, int64(len(rows)))))
	err = dataset.Ordered(ctx, int64(s.Row), int64(last), p.reading, p.pack(rows), func(i int64, r packed) (err error) {
		if err = r.err; err == nil {
			p.writing.Do(func() { err = w.Add(rows[i].ID, r.parts) })
		}
		for _, part := range r.parts {
			size += int64(len(part.Bytes))
		}
		row = int(i) + 1
		if p.Progress != nil {
			p.Progress("write", int64(row), int64(len(rows)), p.stages())
		}
		if err == nil && size >= p.MaxSize {
			err = errFull
		}
		return err
	})
	if err != nil && err != errFull {
		return errors.Join(err, w.Close(), os.Remove(path+".partial"))
	}
	if err := w.CloseSynced(); err != nil {
		return err
	}
	if err := os.Rename(path+".partial", path); err != nil {
		return err
	}
	s.Row, s.Shards = row, s.Shards+1
	return p.save(s)
}

// errFull says that a shard has all that goes into it.
var errFull = errors.New("the shard is full")

// packed is the files of a packed sample.
type packed struct {
	parts []dataset.Part
	err   error
}

// pack reads the samples of a row and puts them together; its errors travel with the row.
func (p *packing) pack(rows []packRow) func(i int64) packed {
	return func(i int64) packed {
		parts, err := p.row(&rows[i])
		return packed{parts, err}
	}
}

// row makes the files of a packed sample: those of its samples, named by their place in it, and the JSON
// that says which belong to which.
func (p *packing) row(r *packRow) (parts []dataset.Part, err error) {
	var list []format.PackedPart
	files := [][]string{}
	for k, i := range r.Samples {
		d, err := p.Source.Read(int64(i))
		if err != nil {
			return nil, fmt.Errorf("sample %d of %s: %w", i, p.Source.Name(), err)
		}
		one, err := format.Packable(&d, p.SampleType)
		if err != nil {
			return nil, err
		}
		names := []string{}
		for _, f := range one.Files {
			b, ok := d.Part(f)
			if !ok {
				return nil, fmt.Errorf("sample %q: it has no file %q any more", d.Key, format.Clip(f))
			}
			name := fmt.Sprintf("s%03d_%s", k, f)
			names, parts = append(names, name), append(parts, dataset.Part{Name: name, Bytes: b})
		}
		list, files = append(list, one), append(files, names)
	}
	b, err := format.PackedJSON(p.PackedType, r.Media, list, files)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", r.ID, err)
	}
	return append(parts, dataset.Part{Name: "json", Bytes: b}), nil
}
