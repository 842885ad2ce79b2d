package noise

import "github.com/lfactor/lfactor/stages/diffusers"

// faults collects what is wrong with a file of settings.
type faults = diffusers.Faults

// Check reports every key of a scheduler that is out of range or contradicts another. File is what errors call it.
func Check(s Scheduler, file string) error {
	f := diffusers.New(file)
	s.check(f)
	return f.Err()
}

// Fits refuses a scheduler for a denoiser that was trained to give another target than the scheduler reads
// from it: the samples would be wrong without any other sign.
func Fits(s Scheduler, file, trained string) error {
	if s.Predicts() == trained {
		return nil
	}
	f := diffusers.New(file)
	f.Add("prediction_type", "take the scheduler that the checkpoint came with, or set its prediction_type",
		"the scheduler %s reads %s, and the denoiser was trained to give %s", s.Class(), s.Predicts(), trained)
	return f.Err()
}
