//go:build cuda

package cuda

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
)

var _ = kernels.RegisterBackend("cuda", kernels.Maker{Open: open, Absent: absent})

// open opens a device for a rank: the named one, or of all devices the one whose turn it is.
func open(o kernels.Options) (kernels.Backend, error) {
	l, err := Load()
	if err != nil {
		return nil, err
	}
	n, err := l.Count()
	if err != nil {
		return nil, err
	}
	index := o.Rank % max(n, 1)
	if o.Which != "" {
		if index, err = strconv.Atoi(o.Which); err != nil {
			return nil, fmt.Errorf("device cuda:%s: want a number, as in cuda:1", o.Which)
		}
	}
	return l.New(index, onProcessor(o.Strict))
}

// absent says why no device can be used here.
func absent() error {
	l, err := Load()
	if err != nil {
		return err
	}
	switch n, err := l.Count(); {
	case err != nil:
		return err
	case n == 0:
		return errors.New("the driver sees no device")
	}
	return nil
}

// New opens a device of a driver for one rank: a stream of its own, with kernels and context shared by all ranks on the device.
func (l *Library) New(index int, absent accel.Absent) (*accel.Device, error) {
	d, err := l.open(index)
	if err != nil {
		return nil, err
	}
	return accel.New(d, d, absent), nil
}

// onProcessor runs on the processor what a device does not have.
func onProcessor(strict bool) accel.Absent {
	return accel.Absent{Strict: strict, Tell: os.Stderr, Open: func() (kernels.Backend, error) { return kernels.Open(kernels.CPU, kernels.Options{}) }}
}
