package dataset

import (
	"context"
	"errors"
	"fmt"
)

// Visit takes document i of a source. The document and all its bytes are the source's, and change when Visit
// returns. bad is why it cannot be used, nil for a good one.
type Visit func(i int64, d *Document, bad *BadSample) error

// Streamer is a source that reads documents in a row with less work than one by one.
type Streamer interface {
	// Stream gives documents from to to-1 in order, 0 <= from <= to <= Len. An error of visit ends it and is returned.
	Stream(ctx context.Context, from, to int64, visit Visit) error
}

// Stream gives documents from to to-1 of a source to visit, in order.
func Stream(ctx context.Context, s Source, from, to int64, visit Visit) error {
	if st, ok := s.(Streamer); ok {
		return st.Stream(ctx, from, to, visit)
	}
	for i := from; i < to; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, err := s.Read(i)
		var bad *BadSample
		if err != nil && !errors.As(err, &bad) {
			return fmt.Errorf("document %d of %s: %w", i, s.Name(), err)
		}
		if err := visit(i, &d, bad); err != nil {
			return err
		}
	}
	return nil
}

// Stream implements Streamer.
func (c *concat) Stream(ctx context.Context, from, to int64, visit Visit) error {
	begin := int64(0)
	for k, s := range c.sources {
		end := c.ends[k]
		if lo, hi := max(from, begin), min(to, end); lo < hi {
			err := Stream(ctx, s, lo-begin, hi-begin, func(i int64, d *Document, bad *BadSample) error {
				return visit(begin+i, d, bad)
			})
			if err != nil {
				return err
			}
		}
		begin = end
	}
	return nil
}

// Sources returns the sources that a source is made of, one after the other: itself, unless it is of several.
func Sources(s Source) []Source {
	if c, ok := s.(*concat); ok {
		return c.sources
	}
	return []Source{s}
}
