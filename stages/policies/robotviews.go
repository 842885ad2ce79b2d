package policies

import (
	"context"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/dataset/format/recordings"
	"github.com/lfactor/lfactor/dataset/media"
)

// shots are frames of videos that were decoded.
type shots map[recordings.VideoFrame]*media.Image

// shotsMost is how many frames of a file are decoded at once.
const shotsMost = 32

// shots decodes all frames of videos that a sample has of the policy's cameras: those of one file together,
// which is then read once, and not from its beginning for each of them.
func (x *Robots) shots(f *recordings.RobotFrame) (shots, error) {
	at, of := map[string][]float64{}, map[string]string{}
	var files []string
	for _, l := range slices.Concat(f.Before, []recordings.RobotLook{f.RobotLook}, f.Later) {
		for _, c := range x.Policy.Cameras {
			v, ok := l.Videos[c]
			if !ok || l.Images[c] != nil {
				continue
			}
			if of[v.File] == "" {
				files, of[v.File] = append(files, v.File), c
			}
			at[v.File] = append(at[v.File], v.Seconds)
		}
	}
	out := shots{}
	for _, file := range files {
		slices.Sort(at[file])
		for times := range slices.Chunk(slices.Compact(at[file]), shotsMost) {
			frames, err := framesOf(file, times)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", of[file], err)
			}
			for i, s := range times {
				out[recordings.VideoFrame{File: file, Seconds: s}] = frames[i]
			}
		}
	}
	return out, nil
}

// views are what the cameras saw in a step, of videos those that were decoded.
func (x *Robots) views(f *recordings.RobotLook, shown shots) (out []*media.Image, err error) {
	for _, c := range x.Policy.Cameras {
		p := shown[f.Videos[c]]
		if b := f.Images[c]; b != nil {
			if p, err = viewOf(b, nil); err != nil {
				return nil, fmt.Errorf("%s: %w", c, err)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// viewOf decodes a picture, or else a frame of a video; nil for neither.
func viewOf(b []byte, v *recordings.VideoFrame) (*media.Image, error) {
	switch {
	case b != nil:
		return media.Decode(b, media.Options{White: true, Turn: true})
	case v != nil:
		frames, err := framesOf(v.File, []float64{v.Seconds})
		if err != nil {
			return nil, err
		}
		return frames[0], nil
	}
	return nil, nil
}

// framesOf decodes frames of a video, by ascending times.
func framesOf(file string, seconds []float64) ([]*media.Image, error) {
	return recordings.FramesAt(context.Background(), media.FFmpeg{}, file, seconds)
}
