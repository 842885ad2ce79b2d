package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/stages/fit"
)

// openTrain opens the loader of the training data: of its sources, or of generations where it grows.
func (d *data) openTrain(conf dataset.LoaderConfig) error {
	if d.r.cfg.Run.Data.Follow {
		if d.leads {
			if err := dataset.ForgetGenerationMark(d.r.cfg.Run.Log.Dir); err != nil {
				return err
			}
		}
		g, err := dataset.OpenGrowing(conf, d.r.encoder(), d.generation)
		if err == nil {
			d.train = g
		}
		return err
	}
	l, err := dataset.OpenLoader(conf, d.r.encoder())
	if err == nil {
		d.train = l
	}
	return err
}

// generation opens the shards of a generation. A shard that is not the one that was taken is an error:
// without it the samples would be others than those of an earlier or another process.
func (d *data) generation(gen int64) ([]dataset.Weighted, func(), error) {
	manifest := d.r.cfg.Run.Data.Paths[0].Path
	list, _, err := dataset.ReadManifest(manifest)
	if errors.Is(err, fs.ErrNotExist) || err == nil && gen >= int64(len(list)) {
		return nil, nil, d.await(gen)
	}
	if err != nil {
		return nil, nil, err
	}
	if list[gen].End {
		return nil, nil, io.EOF
	}
	var paths []configs.WeightPath
	var sft []configs.SFTFormat
	for _, s := range list[gen].Shards {
		p := dataset.ShardPath(manifest, s)
		print, size, err := format.PrintFile(p)
		if err != nil {
			return nil, nil, fmt.Errorf("shard %s of generation %d: %w; put it back", s.Path, gen, err)
		}
		if print != s.Print || size != s.Bytes {
			return nil, nil, fmt.Errorf("shard %s of generation %d is not the one that was taken: %d bytes, want %d, or "+
				"others; put it back", s.Path, gen, size, s.Bytes)
		}
		paths = append(paths, configs.WeightPath{Path: p, Weight: 1})
		if len(d.r.cfg.SFT) > 0 {
			sft = append(sft, d.r.cfg.SFT[0])
		}
	}
	before := len(d.sources)
	out, err := d.openPaths("data.paths", paths, sft)
	mine := d.sources[before:]
	d.sources = d.sources[:before:before]
	free := func() {
		for _, s := range mine {
			_ = s.Close() // it was only read
		}
	}
	if err != nil {
		free()
		return nil, nil, err
	}
	return out, free, nil
}

// await says once in the run's folder that a generation is waited for: whoever grants credits goes by
// it. The first one needs no saying. It returns dataset.ErrNotYet.
func (d *data) await(gen int64) error {
	if d.leads && gen != d.awaits {
		if err := dataset.WriteGenerationMark(d.r.cfg.Run.Log.Dir, gen); err != nil {
			return err
		}
		d.awaits = gen
	}
	return dataset.ErrNotYet
}

// made is one step's data.
type made struct {
	batches    []dataset.Batch
	start, end dataset.Position
	old        bool // made before the run went back: whoever wants the step reads it again
}

// unlearntMax is how many steps may follow each other in which no token is learnt.
const unlearntMax = 10

// learns notes a step without a labelled token. Its loss is told as 0, as if the model knew everything. unlearntMax such
// steps in a row, or all of a shorter run, are dataset.ErrNoTokens: texts are empty, or answers are cut off.
func (d *data) learns(step int64, m *made) error {
	if d.rollouts != nil || d.images != nil || step <= 0 {
		return nil
	}
	tokens := 0
	for i := range m.batches {
		for _, l := range m.batches[i].Labels {
			if tokens++; l != dataset.IgnoreLabel {
				d.unlearnt = 0
				return nil
			}
		}
	}
	if d.unlearnt++; d.unlearnt == 1 {
		d.r.report.say("! step %d learns nothing: none of its %d tokens has a label; its loss is shown as 0", step, tokens)
	}
	if d.unlearnt < min(unlearntMax, int64(d.r.cfg.Run.Train.Steps)) {
		return nil
	}
	return fmt.Errorf("%w that are learnt: of the last %d steps none has a label; the texts are empty, or what is to be "+
		"learnt is cut off by data.seq_len; `lfactor data view` shows them", dataset.ErrNoTokens, d.unlearnt)
}

// goldsSeen are the records of each source whose reward.column is looked at before a run begins.
const goldsSeen = 64

// golds holds reward.column to the data, before answers are drawn: it is a fault of the configuration where no record
// that is looked at has what answers can be judged by, and a note where some have not, whose answers will be set aside.
func (d *data) golds(train []dataset.Weighted) error {
	if d.rollouts == nil || fit.Loss(d.r.cfg).Policy.Unjudged {
		return nil
	}
	for _, s := range train {
		n, without := 0, 0
		var first error
		for i := range min(goldsSeen, s.Source.Len()) {
			doc, err := s.Source.Read(i)
			if bad := new(dataset.BadSample); errors.As(err, &bad) {
				continue // it is set aside when its turn comes
			} else if err != nil {
				return err
			}
			var record map[string]json.RawMessage
			raw, _ := doc.Part("json")
			if json.Unmarshal(raw, &record) != nil {
				continue
			}
			n++
			if err := reward.Judges(&d.r.cfg.Run.Reward, record); err != nil {
				if without++; first == nil {
					first = fmt.Errorf("%s: %w", doc.Place, err)
				}
			}
		}
		switch {
		case without == 0:
		case without == n:
			return d.r.cfg.Fault("reward.column", first.Error(), "name the column that has the right answers")
		default:
			_, _ = fmt.Fprintf(d.notes(), "! of the first %d records of %s %d cannot be judged, and their answers "+
				// a screen's fault is its own
				"will be set aside; the first: %v\n", n, s.Source.Name(), without, first)
		}
	}
	return nil
}
