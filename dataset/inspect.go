package dataset

import "context"

// Inspection counts what Inspect saw.
type Inspection struct {
	Documents int64 `json:"documents"`
	Tokens    int64 `json:"tokens"` // of those that are not bad
	Bad       int64 `json:"bad"`    // quarantined
	// Left counts the documents that data.filters leaves out, by filter and reason.
	Left     map[string]int64 `json:"left,omitempty"`
	Long     int64            `json:"long"`     // over a row's length: cut there, or left out (DropLong); pretraining cuts rows of them
	Unlearnt int64            `json:"unlearnt"` // left out, since nothing of them would be learnt
}

// Inspect reads all documents of a loader's sources once, in their order, makes tokens and media of them as
// the loader does, and tells of each that it would quarantine. The budget does not count.
func Inspect(ctx context.Context, cfg LoaderConfig, enc Encoder, found func(Bad)) (in Inspection, err error) {
	cfg.Sequential, cfg.CacheBytes = true, 0
	l, err := OpenLoader(cfg, enc)
	if err != nil {
		return in, err
	}
	defer l.Close()
	m := maker{feeder: l.feed, at: l.Position()}
	for source, q := range l.feed.queues {
		for i := range q.len() {
			if err := ctx.Err(); err != nil {
				return in, err
			}
			q.moveTo(0, i)
			d, err := q.at(0)
			if err != nil {
				return in, err
			}
			in.Documents++
			m.look(&in, source, d, found)
			release(d.out.media)
		}
	}
	return in, nil
}

// look counts one document.
func (m *maker) look(in *Inspection, source int, d *pendingDoc, found func(Bad)) {
	bad := d.out.bad
	if m.cfg.Mode == ModeSFT && bad == nil {
		if fault := m.mediaFault(d.out); fault != "" {
			bad = &BadSample{d.out.place, fault}
		}
	}
	if bad != nil {
		in.Bad++
		found(Bad{Source: m.cfg.Sources[source].Source.Name(), Document: d.doc, Place: bad.Place, Reason: bad.Reason})
		return
	}
	if d.out.left != "" {
		if in.Left == nil {
			in.Left = map[string]int64{}
		}
		in.Left[d.out.left]++
		return
	}
	in.Tokens += int64(len(d.out.ids))
	if len(d.out.ids) > m.cfg.SeqLen {
		in.Long++
		if m.cfg.Mode == ModeSFT && m.cfg.DropLong {
			return
		}
	}
	if m.cfg.Mode == ModeSFT && m.learnt(0, d.out, Origin{}).tokens == 0 {
		in.Unlearnt++
	}
}
