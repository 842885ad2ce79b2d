package configs

import (
	"fmt"
	"strconv"

	"github.com/lfactor/lfactor/configs/source"
)

// componentRates turns learning rates of parts into factors on optimizer.lr, and gives the encoder ranks of
// its own kind if its tensor parallelism differs from the decoder's.
func (l *loader) componentRates() {
	r := &l.c.Run
	for _, rate := range l.loong.Rates {
		x, err := strconv.ParseFloat(rate.Value.Value, 64)
		if err != nil || x < 0 || r.Optimizer.LR == 0 {
			l.fail(rate.Origin, rate.Key,
				fmt.Sprintf("%s, want a learning rate of at least 0, with optimizer.lr above 0",
					source.Quoted(rate.Value.Value)), "")
			continue
		}
		l.settle("optimizer."+rate.Part+"_lr_scale", formatFloat(x/r.Optimizer.LR), rate.Origin)
	}
	if o := l.c.Origin("plan.encoder.tp"); o.Layer == source.LayerFlag {
		l.loong.EncoderTP = o
	}
	if e := &r.Plan.Encoder; l.loong.EncoderTP.Layer != source.LayerDefault && e.Over == "none" && e.TP != r.Plan.TP {
		l.settle("plan.encoder.over", "first", l.loong.EncoderTP)
	}
}

// settle sets a value after the others were.
func (l *loader) settle(name, value string, o Origin) {
	k := table().byName[name]
	s := setting{k, source.ScalarNode(value), o}
	l.add(s)
	l.set(k.field(&l.c.Run, &l.c.Model), s)
}
