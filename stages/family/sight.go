package family

import (
	"math"

	"github.com/lfactor/lfactor/stages/block"
)

// Sight is what a policy sees of each sample: so many views at most, each of so many patches of so many numbers.
type Sight struct {
	Views, Patches, Pixels int
	// height and width of views that are read whole, whose patches are their pixels; zeros for a square
	// of square patches
	Size [2]int
	// height and width of views of which Size is a part: in the middle when the model acts, and with Jumps
	// from a place of its own of each sample that is learnt; zeros for views that are read to their edges
	Frame [2]int
	Jumps bool
	State int // numbers of a robot's state, 0 where it is told in words
	// Fold is the side of the squares of patches that become one row of features; 0 is one patch. Corner says that a
	// view which is smaller than its square lies in the corner at the bottom right, and not in the middle
	Fold   int
	Corner bool
	// Last says that of a patch the channel varies fastest, and not slowest
	Last bool
	// Colours says that pixels are read as ImageNet's are, with its mean and its deviation of each colour
	Colours bool
	// Plain has pixels from 0 to 1 learnt as they are by a policy that reads views whole, which else reads ImageNet's
	Plain bool
	// Token gives a state a row of its own, which reads the captions and is read by the actions: it lies between both
	Token bool
	// Steps is how many steps are observed, the earliest first: Views and State are those of all of them; 0 is one
	Steps int
}

// Observed is how many steps are observed, with the present one.
func (v *Sight) Observed() int { return max(1, v.Steps) }

// Cameras is how many views a step has, and Numbers how many numbers a state.
func (v *Sight) Cameras() int { return v.Views / v.Observed() }

// Numbers is how many numbers the state of a step has.
func (v *Sight) Numbers() int { return v.State / v.Observed() }

// Whole reports whether views are read whole, all of a sample.
func (v *Sight) Whole() bool { return v.Size[0] > 0 }

// Extent is the height and the width of a view in pixels: its patches are a square of squares in three
// colours, where it is not read whole.
func (v *Sight) Extent() [2]int {
	if v.Whole() {
		return v.Size
	}
	n := int(math.Sqrt(float64(v.Patches))) * int(math.Sqrt(float64(v.Pixels/3)))
	return [2]int{n, n}
}

// Seen is the height and the width that views are brought to before a part of them is read.
func (v *Sight) Seen() [2]int {
	if v.Frame[0] > 0 {
		return v.Frame
	}
	return v.Extent()
}

// Rows is the number of patches of the views of a microbatch, and FeatureRows that of rows of features.
func (v *Sight) Rows(s block.Shape) int { return Levels(s) * v.Views * v.Patches }

// FeatureRows is the number of rows of features of the views of a microbatch; Features is that of a view.
func (v *Sight) FeatureRows(s block.Shape) int { return Levels(s) * v.Views * v.Features() }

// Features is the number of rows of features of a view.
func (v *Sight) Features() int { return v.Patches / (max(1, v.Fold) * max(1, v.Fold)) }

// Cut lays a view's pixels [3 height width] out as patches, [Patches Pixels]: of a patch the channel varies
// slowest, or fastest.
func (v *Sight) Cut(pixels []float32) []float32 {
	out := make([]float32, 0, len(pixels))
	if v.Whole() {
		for at := range v.Patches {
			out = append(out, pixels[at], pixels[v.Patches+at], pixels[2*v.Patches+at])
		}
		return out
	}
	n, side := int(math.Sqrt(float64(v.Patches))), v.Extent()[0]
	patch := side / n
	for at := range v.Patches {
		if v.Last {
			for i := range patch * patch {
				for c := range 3 {
					out = append(out, pixels[(c*side+at/n*patch+i/patch)*side+at%n*patch+i%patch])
				}
			}
			continue
		}
		for c := range 3 {
			for y := range patch {
				from := (c*side+at/n*patch+y)*side + at%n*patch
				out = append(out, pixels[from:from+patch]...)
			}
		}
	}
	return out
}

// Words is what lerobot's pipelines make a prompt by: the step that makes one of a task, by its registered
// name, "" for none, and the tokenizer, by its name at the hub and how it pads. Scaled says that the step
// reads the scaled state, and Behind are the steps behind the tokenizer's. Prompts of a model that reads
// Rows tokens always, with those of padding, which do not learn, have the tokenizer's own beginning and end.
type Words struct {
	Step, Tokenizer, Padding string
	Scaled                   bool
	Behind                   []string
	Rows                     int
	Pad                      int32
	// Image is the token in whose place each row of a view's features lies among those of a prompt, 0 for
	// views that lie before it; Between are the parts of a prompt of so many views that these lie between.
	Image   int32
	Between func(task string, views int) []string
	// Robot is the step that says which of the robots acts that the model has weights for
	Robot RobotStep
}

// RobotStep is a step of a pipeline, by its registered name, and the key of its settings that is the robot's
// number. With Tag that key has numbers of robots by their names, and Tag is the key of the name, which is Name
// where it is written; More are other settings.
type RobotStep struct {
	Step, Key, Tag, Name string
	More                 map[string]any
}
