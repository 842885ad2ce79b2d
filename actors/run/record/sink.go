package record

import (
	"fmt"
	"time"

	"github.com/lfactor/lfactor/configs/source"
)

// Sink takes the figures of a run as they come. What it cannot write must not end training: it keeps the
// first error for Close.
type Sink interface {
	// Scalar takes the value of a figure in a step; figures of one step come one after the other.
	Scalar(tag string, step int64, v float64)
	// Close ends the record of a run that has come to its end, or has not.
	Close(whole bool) error
}

// SinkOptions say what a sink is opened for.
type SinkOptions struct {
	Dir     string            // the run's
	First   int64             // the step that the run begins with
	Project string            // under which trackers group runs
	Name    string            // of the run, the same when it is resumed
	ID      string            // of the run, lower-case letters and digits, the same when it is resumed
	Config  map[string]string // all settings
	Now     func() time.Time
}

// SinkKind is a kind of sink, one file that registers itself.
type SinkKind struct {
	Name   string
	Source string // where the format is described
	Open   func(o SinkOptions) (Sink, error)
}

var sinks []SinkKind

// RegisterSink enters a kind; its name is then a value of log.trackers.
func RegisterSink(k SinkKind) struct{} {
	source.Offer(source.Trackers, k.Name)
	sinks = append(sinks, k)
	return struct{}{}
}

// OpenSink opens one of a kind.
func OpenSink(name string, o SinkOptions) (Sink, error) {
	for _, k := range sinks {
		if k.Name == name {
			s, err := k.Open(o)
			if err != nil {
				return nil, fmt.Errorf("log.trackers: %s: %w", name, err)
			}
			return s, nil
		}
	}
	return nil, fmt.Errorf("log.trackers: there is no %q", name)
}
