package run

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
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
