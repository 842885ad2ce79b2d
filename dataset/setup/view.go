package setup

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/lfactor/lfactor/dataset"
)

// View is a page to look into data with: its sources, rows as they will be trained, samples, and what was
// dropped. It is one file that loads nothing.
type View struct {
	Name    string
	Sources []ViewSource
	Steps   []ViewStep
	Totals  ViewTotals
	Samples []ViewSample
	Drops   []ViewDrop // the first of each reason
	Dropped []ViewCount
	Notes   []string // what is left out
	media   int64    // bytes of images that the page has
	size    int64    // bytes of the rest, about
}

// ViewSource is a source with its share of what is shown.
type ViewSource struct {
	Name      string
	Documents int64
	Weight    float64 // of the mixture that was asked for; 0 where there is none
	ViewTotals
}

// ViewTotals is what rows hold.
type ViewTotals struct{ Segments, Tokens, Learnt, Rows, Places int }

// Share is how much of something a part is, in percent.
func (t ViewTotals) Share(part, all int) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(max(1, all)))
}

// ViewStep is a step: its rows as ranks get them.
type ViewStep struct {
	Step int64
	Rows []ViewRow
}

// ViewRow is a row of tokens, cut into segments.
type ViewRow struct {
	Segments []ViewSegment
	Padding  int
}

// ViewSegment is what attends to itself: a sample, or a window of texts.
type ViewSegment struct {
	Sample         int64
	Source, Place  string
	Tokens, Learnt int
	Runs           []ViewRun
}

// ViewRun is neighbouring tokens that are all learnt or all not, or the tokens of an image or a video.
type ViewRun struct {
	Text   string
	Learnt bool
	Media  *previewPart
}

// ViewSample is a document as it is read.
type ViewSample struct {
	Source string
	previewSample
}

// ViewDrop is a document that a recipe dropped.
type ViewDrop struct {
	Input, Step, Reason, Detail, Place, Head string
}

// ViewCount is how many documents a step dropped for a reason.
type ViewCount struct {
	Step, Reason string
	N            int
}

// Bounds of a page.
const (
	viewMediaMax = 48 << 20 // bytes of images
	viewDropsMax = 50       // documents of a step and reason
	viewLineMax  = 16 << 20
	viewTextMax  = 32 << 20 // bytes beside images, about
	viewItem     = 200      // bytes of what stands around each text
)

// Decoder turns ids into text; *token.Tokenizer is one.
type Decoder interface {
	Decode(ids []int32, skipSpecial bool) string
}

// Full says whether the page takes no more steps, samples and dropped documents, and notes once what is left out.
func (v *View) Full(what string) bool {
	if v.size < viewTextMax {
		return false
	}
	v.Notes = append(v.Notes, what+" not shown: the page has enough")
	return true
}

// counts counts texts.
func (v *View) counts(texts ...string) {
	for _, t := range texts {
		v.size += int64(len(t))
	}
	v.size += viewItem
}

// AddSource notes a source; weight is its share of the mixture, 0 for none.
func (v *View) AddSource(s dataset.Source, weight float64) {
	v.Sources = append(v.Sources, ViewSource{Name: s.Name(), Documents: s.Len(), Weight: weight})
}

// AddSamples reads n samples, spread evenly over a source.
func (v *View) AddSamples(s dataset.Source, n int64, kind string, tags dataset.Tags) error {
	n = min(n, s.Len())
	for k := range n {
		if v.Full(fmt.Sprintf("%d of %d samples of %s are", n-k, n, s.Name())) {
			break
		}
		p, err := preview(s, k*s.Len()/n, kind, tags)
		if err != nil {
			return err
		}
		v.counts(p.Key, p.Place, p.Bad)
		for _, t := range p.Turns {
			for i := range t.Parts {
				v.counts(t.Parts[i].Text, t.Parts[i].Note)
				v.bound(&t.Parts[i])
			}
		}
		v.Samples = append(v.Samples, ViewSample{s.Name(), p})
	}
	return nil
}

// bound leaves images out of a page that has enough of them.
func (v *View) bound(p *previewPart) {
	size := int64(len(p.Image) + len(p.Video))
	if v.media+size > viewMediaMax {
		p.Image, p.Video, p.Note = "", "", p.Note+" (not shown: the page has enough of them)"
		return
	}
	v.media += size
}

// AddStep adds a step's rows. d is nil for ids that no tokenizer is known of.
func (v *View) AddStep(step int64, batches []dataset.Batch, d Decoder) {
	out := ViewStep{Step: step}
	for b := range batches {
		at := 0
		for r := range batches[b].Rows {
			out.Rows = append(out.Rows, v.row(&batches[b], r, &at, d))
		}
	}
	v.Steps = append(v.Steps, out)
}

// row makes row r of a microbatch; at is its first segment, and moves on.
func (v *View) row(b *dataset.Batch, r int, at *int, d Decoder) (row ViewRow) {
	v.Totals.Rows++
	v.counts()
	v.Totals.Places += b.SeqLen
	end := int32((r + 1) * b.SeqLen)
	for ; *at < len(b.SampleIDs) && b.CuSeqlens[*at] < end; *at++ {
		from, to := int(b.CuSeqlens[*at]), int(b.CuSeqlens[*at+1])
		if b.SampleIDs[*at] < 0 {
			row.Padding += to - from
			continue
		}
		row.Segments = append(row.Segments, v.segment(b, *at, from, to, d))
	}
	return row
}

// segment makes segment k, the tokens from to to-1. A token is learnt where the place before it has it for a label.
func (v *View) segment(b *dataset.Batch, k, from, to int, d Decoder) ViewSegment {
	s := ViewSegment{Sample: b.SampleIDs[k], Tokens: to - from}
	origin := v.origin(b, &s)
	v.counts(s.Source, s.Place)
	learnt := func(i int) bool { return i > from && b.Labels[i-1] != dataset.IgnoreLabel }
	for i := from; i < to; {
		if m, end := mediumAt(b, i, to); m != nil {
			part := previewMedium(m)
			part.Note = fmt.Sprintf("%s, %d tokens", part.Note, end-i)
			v.bound(&part)
			v.counts(part.Note)
			s.Runs = append(s.Runs, ViewRun{Media: &part})
			i = end
			continue
		}
		end := i + 1
		for end < to && learnt(end) == learnt(i) && !beginsMedium(b, end) {
			end++
		}
		if learnt(i) {
			s.Learnt += end - i
		}
		text := textOf(b.Tokens[i:end], d)
		v.counts(text)
		s.Runs = append(s.Runs, ViewRun{Text: text, Learnt: learnt(i)})
		i = end
	}
	v.Totals.count(&s)
	if origin >= 0 {
		v.Sources[origin].count(&s)
	}
	return s
}

// origin says where a segment comes from, and which source that is, -1 for none that is known.
func (v *View) origin(b *dataset.Batch, s *ViewSegment) int {
	for _, o := range b.Origins {
		if o.Sample != s.Sample || o.Source < 0 || o.Source >= len(v.Sources) {
			continue
		}
		s.Source, s.Place = v.Sources[o.Source].Name, o.Place.String()
		if o.Key != "" {
			s.Place += " " + o.Key
		}
		return o.Source
	}
	return -1
}

// count counts a segment.
func (t *ViewTotals) count(s *ViewSegment) {
	t.Segments++
	t.Tokens += s.Tokens
	t.Learnt += s.Learnt
}

// textOf writes tokens as text, or as numbers.
func textOf(ids []int32, d Decoder) string {
	if d == nil {
		return fmt.Sprint(ids)
	}
	return d.Decode(ids, false)
}

// beginsMedium says whether a medium's tokens begin at a place.
func beginsMedium(b *dataset.Batch, at int) bool {
	m, _ := mediumAt(b, at, at+1)
	return m != nil
}

// mediumAt returns the medium whose first tokens begin at a place, and where they end, at most at end.
func mediumAt(b *dataset.Batch, at, end int) (*dataset.Media, int) {
	for i := range b.Media {
		if s := b.Media[i].Spans; len(s) > 0 && int(s[0].From) == at {
			return &b.Media[i], max(min(int(s[0].To), end), at+1)
		}
	}
	return nil, 0
}

// AddDropped reads what a recipe dropped: dropped.jsonl, of which the first documents of each reason are shown.
func (v *View) AddDropped(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	at := map[[2]string]int{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, viewLineMax)
	for n := 1; in.Scan(); n++ {
		var d struct {
			Input, Step, Reason, Detail, File, Head string
			Document, Offset                        int64
		}
		if err := json.Unmarshal(in.Bytes(), &d); err != nil || d.Step == "" {
			return fmt.Errorf("%s:%d: it is no line of what `lfactor data run` drops", path, n)
		}
		key := [2]string{d.Step, d.Reason}
		if v.Full(fmt.Sprintf("%s: line %d and those behind it are", path, n)) {
			break
		}
		if _, ok := at[key]; !ok {
			v.counts(d.Step, d.Reason)
			at[key] = len(v.Dropped)
			v.Dropped = append(v.Dropped, ViewCount{Step: d.Step, Reason: d.Reason})
		}
		c := &v.Dropped[at[key]]
		if c.N++; c.N <= viewDropsMax {
			v.counts(d.Input, d.Step, d.Reason, d.Detail, d.File, d.Head)
			v.Drops = append(v.Drops, ViewDrop{Input: d.Input, Step: d.Step, Reason: d.Reason, Detail: d.Detail,
				Place: fmt.Sprintf("%s at byte %d, document %d", d.File, d.Offset, d.Document), Head: d.Head})
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Write writes the page.
func (v *View) Write(w io.Writer) error { return viewPage.Execute(w, v) }
