package dataset

import "fmt"

// Position is where a run stands in the global order: all that is needed to go on. It is small, and its JSON
// form belongs in a checkpoint. The zero value is the start.
type Position struct {
	Order   string           `json:"order"`          // fingerprint of the order: sources, seed, weights, cutting
	Step    int64            `json:"step"`           // the step that comes next
	Sample  int64            `json:"sample"`         // place in the global order of the block's or window's first sample
	Used    int              `json:"used"`           // samples (of a block) or packs (of a window) already given
	Bad     int64            `json:"bad"`            // documents found bad before the block or window
	Sources []SourcePosition `json:"sources"`        // at the start of the block or window
	Rows    int64            `json:"rows,omitempty"` // before the block or window, where weights change
	// of a data set that grows: the generation under way, and the step that it began with
	Generation int64 `json:"generation,omitempty"`
	Since      int64 `json:"since,omitempty"`
}

// SourcePosition is where one source stands.
type SourcePosition struct {
	Taken int64   `json:"taken"` // samples taken, which decides the blending of what follows
	Pass  int64   `json:"pass"`
	Doc   int64   `json:"doc"`             // place in the order of this pass: of a document, or of a piece of one
	Token int64   `json:"token"`           // of it, where what is joined with others begins, when windows are cut from tokens
	Ahead int64   `json:"ahead,omitempty"` // how many, from Doc on, were opened for windows
	Due   float64 `json:"due,omitempty"`   // samples that were to be taken, where weights change
	Given int64   `json:"given,omitempty"` // windows that the last of these gave
}

// OrderError says that a position belongs to another order of the data: other sources, seed, weights or cutting.
type OrderError struct{ Have, Want string }

func (e *OrderError) Error() string {
	return fmt.Sprintf("the position belongs to the data order %s, this run has %s: sources, seed, "+
		"weights, sequence length, packing, tokenizer or encoders were changed; "+
		"resume with those of the run that saved it", e.Want, e.Have)
}

func (p Position) clone() Position {
	p.Sources = append([]SourcePosition(nil), p.Sources...)
	return p
}
