package dataset

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"sync"
)

// Work makes what the items from to to-1 of a part of a job's input become, as EncodeItems writes it. The
// same items give the same bytes on any host that has the input. with is what was sent along of things that
// only the host that leads has, nil for items that every host finds in the input.
type Work func(ctx context.Context, part int, from, to int64, with []byte) ([]byte, error)

// Remote has the items of a job made on several hosts. Its zero value has none: they are made here.
// In the words of the field: remote work.
type Remote struct {
	Do    Work // carries out a batch on some host; nil where items are made here
	Part  int  // of the input
	Ahead int  // batches that are under way at once
	// With is what goes along with a batch; nil sends nothing.
	With func(from, to int64) ([]byte, error)
}

// EncodeItems writes down what work makes of the items from to to-1. T is a struct that gob can carry.
func EncodeItems[T any](ctx context.Context, from, to int64, work func(i int64) T) ([]byte, error) {
	items := make([]T, 0, max(0, to-from))
	for i := from; i < to; i++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		items = append(items, work(i))
	}
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(items)
	return b.Bytes(), err
}

// Items gives what became of single items, in batches of size that are made elsewhere, the following ones
// ahead. Each item is asked for once, none below from, and neighbours at about the same time. The result is
// here itself where e has no hosts.
func Items[T any](ctx context.Context, e Remote, from, to, size int64, here func(i int64) T,
	failed func(error) T) func(i int64) T {
	if e.Do == nil {
		return here
	}
	x := &itemsAhead[T]{ctx: ctx, e: e, from: from, to: to, size: size, batches: map[int64]*itemBatch[T]{}}
	return func(i int64) T {
		v, err := x.item(i)
		if err != nil {
			return failed(err)
		}
		return v
	}
}

// itemsAhead is the batches that are under way, or not used up yet.
type itemsAhead[T any] struct {
	ctx            context.Context
	e              Remote
	from, to, size int64
	mu             sync.Mutex
	next           int64 // batch to ask for
	batches        map[int64]*itemBatch[T]
}

type itemBatch[T any] struct {
	done  chan struct{}
	items []T
	err   error
	left  int64 // items that were not taken
}

// item takes an item of a batch, and asks for batches up to some behind it.
func (x *itemsAhead[T]) item(i int64) (v T, err error) {
	k := (i - x.from) / x.size
	x.mu.Lock()
	for ; x.next <= k+int64(max(1, x.e.Ahead)) && x.from+x.next*x.size < x.to; x.next++ {
		first := x.from + x.next*x.size
		last := min(first+x.size, x.to)
		b := &itemBatch[T]{done: make(chan struct{}), left: last - first}
		x.batches[x.next] = b
		go b.make(x, first, last)
	}
	b := x.batches[k]
	x.mu.Unlock()
	select {
	case <-b.done:
	case <-x.ctx.Done():
		return v, x.ctx.Err()
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if b.left--; b.left == 0 {
		delete(x.batches, k)
	}
	if b.err != nil {
		return v, b.err
	}
	return b.items[i-x.from-k*x.size], nil
}

func (b *itemBatch[T]) make(x *itemsAhead[T], from, to int64) {
	defer close(b.done)
	var with []byte
	var err error
	if x.e.With != nil {
		with, err = x.e.With(from, to)
	}
	var text []byte
	if err == nil {
		text, err = x.e.Do(x.ctx, x.e.Part, from, to, with)
	}
	if err == nil {
		err = gob.NewDecoder(bytes.NewReader(text)).Decode(&b.items)
	}
	if err == nil && int64(len(b.items)) != to-from {
		err = fmt.Errorf("%d items came of %d", len(b.items), to-from)
	}
	b.err = err
}

// Fault is an error of an item as it travels between hosts: why the item is bad, or another error's text.
type Fault struct {
	Bad   bool
	Place Place
	Text  string
}

// FaultOf is an error as it travels, the zero value for nil.
func FaultOf(err error) (f Fault) {
	var bad *BadSample
	switch {
	case errors.As(err, &bad):
		return Fault{true, bad.Place, bad.Reason}
	case err != nil:
		return Fault{Text: err.Error()}
	}
	return f
}

// Err is the error that a fault was made of, nil for the zero value.
func (f Fault) Err() error {
	switch {
	case f.Bad:
		return &BadSample{f.Place, f.Text}
	case f.Text != "":
		return errors.New(f.Text)
	}
	return nil
}
