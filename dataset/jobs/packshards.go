package jobs

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/pack"
	"github.com/lfactor/lfactor/topology/machine"
)

// PackConfig says how PackShards packs.
type PackConfig struct {
	OutputDir  string
	Source     dataset.Source        // samples of conversations
	SampleType string                // of the source; "" tells it from each sample
	Encoder    dataset.SampleEncoder // counts tokens
	Algorithm  string                // of package pack; "" means best-fit-decreasing
	Tokens     int                   // of a packed sample
	Images     int                   // of a packed sample; 0 means any number
	PackedType string                // packed_chat_mix (the default) or packed_multi_mix_qa
	MaxCount   int64                 // packed samples of a shard; 0 means 10,000
	MaxSize    int64                 // bytes of files of a shard; 0 means 2e9
	Workers    int                   // samples made tokens of at once; 0 means 1
	Budget     dataset.Budget
	Progress   func(step string, done, all int64, stages []dataset.Stage) // nil for none
	Elsewhere  dataset.Remote                                             // hosts that count samples
}

// PackReport is what PackShards has done.
type PackReport struct {
	Samples  int64            `json:"samples"` // packed
	Packs    int64            `json:"packs"`
	Shards   int              `json:"shards"`
	Tokens   int64            `json:"tokens"`
	Fill     float64          `json:"fill"`     // tokens of all rows that are used
	Overlong int64            `json:"overlong"` // samples over a row, listed in skipped_overlong.jsonl
	Left     int64            `json:"left"`     // samples that the algorithm put in no row
	Bad      int64            `json:"bad"`
	Media    map[string]int64 `json:"media"` // packs by what they hold
	Stages   []dataset.Stage  `json:"stages"`
}

// manifestLine is a sample as counted; the manifest keeps them, so that a run that was cut off need not count again.
type manifestLine struct {
	I      int64  `json:"i"`
	Tokens int    `json:"tokens"`
	Images int    `json:"images,omitempty"`
	Media  string `json:"media,omitempty"` // text, image or video
	Bad    string `json:"bad,omitempty"`
}

const (
	packStateFile    = ".pack.json"
	packManifestFile = ".pack-manifest.jsonl"
)

// PackShards packs the samples of shards into samples of up to a number of tokens, each holding several
// conversations with their media, as LoongForge's offline packing does, and describes the new shards for Energon.
// Texts, images and videos are packed apart. A run that was cut off goes on where it was, to the same bytes.
func PackShards(ctx context.Context, c PackConfig) (PackReport, error) {
	p := &packing{PackConfig: c, report: PackReport{Media: map[string]int64{}}}
	release, err := machine.HoldFolder(c.OutputDir)
	if err != nil {
		return p.report, err
	}
	defer release()
	if err := p.begin(); err != nil {
		return p.report, err
	}
	defer p.bad.Close()
	if err := p.count(ctx); err != nil {
		return p.report, err
	}
	plan, err := p.plan()
	if err != nil {
		return p.report, err
	}
	err = p.write(ctx, plan)
	p.report.Stages = p.stages()
	return p.report, err
}

type packing struct {
	PackConfig
	algorithm pack.Algorithm
	settings  string
	bad       *dataset.Quarantine
	manifest  []manifestLine
	report    PackReport

	counting, reading, writing *dataset.Meter
}

func (p *packing) stages() []dataset.Stage {
	return []dataset.Stage{p.counting.Stage(), p.reading.Stage(), p.writing.Stage()}
}

// begin fills in defaults, checks the settings, and takes a fingerprint of all that the result
// depends on, by which a later run sees whether it may go on.
func (p *packing) begin() (err error) {
	p.Algorithm = cmp.Or(p.Algorithm, "best-fit-decreasing")
	p.PackedType = cmp.Or(p.PackedType, "packed_chat_mix")
	if p.algorithm, err = pack.Find(p.Algorithm); err != nil {
		return err
	}
	if p.MaxCount <= 0 {
		p.MaxCount = 10_000
	}
	if p.MaxSize <= 0 {
		p.MaxSize = 2e9
	}
	p.Workers = max(1, p.Workers)
	p.counting, p.reading, p.writing = &dataset.Meter{Name: "count", Workers: p.Workers},
		&dataset.Meter{Name: "read", Workers: p.Workers}, &dataset.Meter{Name: "write", Workers: 1}
	switch {
	case p.PackedType != "packed_chat_mix" && p.PackedType != "packed_multi_mix_qa":
		return fmt.Errorf("packed type %q; it must be packed_chat_mix or packed_multi_mix_qa", p.PackedType)
	case p.Source.Kind().Form() != dataset.InParts:
		return fmt.Errorf("%s holds %s; convert it to shards first", p.Source.Name(), p.Source.Kind())
	case p.Tokens < 1:
		return fmt.Errorf("rows of %d tokens", p.Tokens)
	}
	if err := os.MkdirAll(p.OutputDir, 0o755); err != nil {
		return err
	}
	p.settings = format.HashOf("pack 1", p.Source.Fingerprint(), p.SampleType, p.Encoder.Fingerprint(), p.Algorithm,
		p.Tokens, p.Images, p.PackedType, p.MaxCount, p.MaxSize)
	p.bad, err = dataset.OpenQuarantine(filepath.Join(p.OutputDir, "quarantine.jsonl"))
	return err
}

// count makes tokens of every sample that the manifest lacks.
func (p *packing) count(ctx context.Context) error {
	f, err := p.openManifest()
	if err != nil {
		return err
	}
	all := p.Source.Len()
	out := bufio.NewWriterSize(f, 1<<16)
	e := json.NewEncoder(out)
	err = dataset.Ordered(ctx, int64(len(p.manifest)), all, p.counting, p.measures(ctx),
		func(i int64, m measured) error {
			if err := errors.Join(m.err, m.Fault.Err()); err != nil {
				return err
			}
			p.manifest = append(p.manifest, m.Line)
			if p.Progress != nil {
				p.Progress("count", i+1, all, p.stages())
			}
			return e.Encode(m.Line)
		})
	return errors.Join(err, out.Flush(), f.Sync(), f.Close())
}

// openManifest reads the lines that an earlier run left, but for one that was cut off, and opens the file behind them.
func (p *packing) openManifest() (*os.File, error) {
	path := filepath.Join(p.OutputDir, packManifestFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*os.File, error) { return nil, errors.Join(err, f.Close()) }
	head := fmt.Sprintf("{\"settings\":%q}\n", p.settings)
	in := bufio.NewReader(f)
	first, err := in.ReadString('\n')
	end := int64(len(first))
	if err == io.EOF {
		have, err := filepath.Glob(filepath.Join(p.OutputDir, "*.tar"))
		if err != nil || len(have) > 0 {
			return fail(fmt.Errorf("%s holds shards already; name another folder", p.OutputDir))
		}
		if _, err := f.WriteString(head); err != nil {
			return fail(err)
		}
		return f, nil
	} else if err != nil {
		return fail(err)
	} else if first != head {
		return fail(fmt.Errorf("%s was begun with other samples or settings; name another folder, or "+
			"delete it", p.OutputDir))
	}
	for {
		line, err := in.ReadBytes('\n')
		var l manifestLine
		if err != nil || json.Unmarshal(line, &l) != nil || l.I != int64(len(p.manifest)) {
			break
		}
		p.manifest = append(p.manifest, l)
		end += int64(len(line))
	}
	if err := f.Truncate(end); err != nil {
		return fail(err)
	}
	_, err = f.Seek(end, io.SeekStart)
	if err != nil {
		return fail(err)
	}
	return f, nil
}

// measured is a sample as counted, or an error of the moment.
type measured struct {
	Line  manifestLine
	Fault dataset.Fault // of another host
	err   error
}

// measure counts one sample. What is wrong with it is not an error.
func (p *packing) measure(i int64) measured {
	l, err := p.line(i)
	return measured{Line: l, err: err}
}

// packBatch is how many samples another host counts at once.
const packBatch = 32

// measures counts samples here, or elsewhere.
func (p *packing) measures(ctx context.Context) func(i int64) measured {
	return dataset.Items(ctx, p.Elsewhere, int64(len(p.manifest)), p.Source.Len(), packBatch, p.measure,
		func(err error) measured { return measured{err: err} })
}

// PackWork is what hosts do for PackShards that are elsewhere: they count samples.
func PackWork(c PackConfig) dataset.Work {
	p := &packing{PackConfig: c}
	return func(ctx context.Context, _ int, from, to int64, _ []byte) ([]byte, error) {
		return dataset.EncodeItems(ctx, from, to, func(i int64) measured {
			m := p.measure(i)
			m.Fault = dataset.FaultOf(m.err)
			return m
		})
	}
}

// line measures sample i for the plan: tokens, images and kind of media. A bad sample gets a line
// with its reason; other errors end the job.
func (p *packing) line(i int64) (manifestLine, error) {
	l := manifestLine{I: i, Media: "text"}
	d, err := p.Source.Read(i)
	var samples []dataset.Sample
	if err == nil {
		if _, err = format.Packable(&d, p.SampleType); err == nil {
			samples, err = p.Encoder.EncodeSample(&d)
		}
		if err != nil {
			l.Bad = err.Error()
			return l, nil
		}
	}
	var bad *dataset.BadSample
	if errors.As(err, &bad) {
		l.Bad = bad.Error()
		return l, nil
	}
	if err != nil {
		return l, err
	}
	for _, s := range samples {
		l.Tokens += len(s.Tokens)
		l.Images += len(s.Media)
		for _, m := range s.Media {
			if l.Media != "video" {
				l.Media = string(m.Kind)
			}
		}
	}
	return l, nil
}

// packRow is a packed sample: its key and the samples in it.
type packRow struct {
	ID      string `json:"pack_id"`
	Media   string `json:"media_type"`
	Samples []int  `json:"sample_ids"`
	Lengths []int  `json:"sample_token_lens"`
	Total   int    `json:"total_token_len"`
}

// plan lays the samples into rows, each kind of media apart, and writes the plan and what is left out of it.
func (p *packing) plan() (rows []packRow, err error) {
	var overlong, left []manifestLine
	for _, kind := range []string{"text", "image", "video"} {
		var items []pack.Item
		var lines []manifestLine
		for _, l := range p.manifest {
			if l.Bad == "" && l.Media == kind {
				items, lines = append(items, pack.Item{Tokens: l.Tokens, Images: l.Images}), append(lines, l)
			}
		}
		bins, rest := p.algorithm.Pack(items, pack.Limits{Tokens: p.Tokens, Images: p.Images, Open: 16})
		for _, i := range rest {
			if l := lines[i]; l.Tokens > p.Tokens {
				overlong = append(overlong, l)
			} else {
				left = append(left, l)
			}
		}
		for _, b := range bins {
			slices.Sort(b)
			r := packRow{ID: fmt.Sprintf("%s_pack_%08d", kind, p.report.Media[kind]), Media: kind}
			for _, i := range b {
				r.Samples, r.Lengths, r.Total = append(r.Samples, int(lines[i].I)),
					append(r.Lengths, lines[i].Tokens), r.Total+lines[i].Tokens
			}
			p.report.Media[kind]++
			p.report.Samples += int64(len(b))
			p.report.Tokens += int64(r.Total)
			rows = append(rows, r)
		}
	}
	p.report.Packs, p.report.Overlong, p.report.Left = int64(len(rows)), int64(len(overlong)), int64(len(left))
	if len(rows) > 0 {
		p.report.Fill = float64(p.report.Tokens) / float64(p.Tokens) / float64(len(rows))
	}
	if err := p.setAside(); err != nil {
		return nil, err
	}
	return rows, errors.Join(format.WriteLines(filepath.Join(p.OutputDir, "pack_plan.jsonl"), rows),
		format.WriteLines(filepath.Join(p.OutputDir, "skipped_overlong.jsonl"), overlong),
		format.WriteLines(filepath.Join(p.OutputDir, "left.jsonl"), left))
}

// setAside quarantines what could not be counted.
func (p *packing) setAside() error {
	for _, l := range p.manifest {
		if l.Bad == "" {
			continue
		}
		p.report.Bad++
		b := dataset.Bad{Source: p.Source.Name(), Document: l.I, Reason: l.Bad}
		if err := p.bad.Add(b); err != nil {
			return err
		}
		if !p.Budget.Allows(p.report.Bad, int64(len(p.manifest))) {
			return &dataset.BudgetError{Budget: p.Budget, Bad: p.report.Bad, Read: int64(len(p.manifest)), Last: b}
		}
	}
	return nil
}
