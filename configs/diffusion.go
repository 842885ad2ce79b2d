package configs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// Diffusion says how a model of diffusion is trained: what encodes its images and captions, and under which
// noise. It has no meaning for other models.
type Diffusion struct {
	Scheduler   string   `key:"scheduler" default:"" class:"fixed" doc:"A scheduler_config.json of diffusers, or the folder that has it: the noise levels of training and the sampler. Empty takes scheduler beside the model, else flow matching without a shift."`
	Raise       float64  `key:"shift" default:"1" min:"0.000001" max:"1000000" class:"fixed" doc:"Shift towards noise of the levels of flow matching where there is no scheduler's file: s·x/(1+(s-1)·x) of a level x. diffusers has 3 for Wan at 480 rows and 5 at 720."`
	Autoencoder string   `key:"autoencoder" default:"" class:"fixed" doc:"Folder of the autoencoder in diffusers' layout, whose latents the model learns. Empty takes vae beside the model; pixels has the model learn pixels, from -1 to 1."`
	Text        string   `key:"text_encoder" default:"" class:"fixed" doc:"Folder of the encoder of captions, as transformers writes it, with its tokenizer beside it or in tokenizer next to it. Empty takes text_encoder beside the model; none trains without captions."`
	Text2       string   `key:"text_encoder_2" default:"" class:"fixed" doc:"The same of a second encoder, for models that read two."`
	Text3       string   `key:"text_encoder_3" default:"" class:"fixed" doc:"The same of a third encoder, for models that read three (Stable Diffusion 3). Without it they read zeros in the place of its rows, as in diffusers."`
	Image       string   `key:"image_encoder" default:"" class:"fixed" doc:"Folder of CLIP's vision encoder for models that read features of the image that clips begin with, with its processor beside it or in image_processor next to it. Empty takes image_encoder beside the model."`
	TrainText   bool     `key:"train_text_encoder" default:"false" class:"fixed" doc:"Encoders of captions learn too, with diffusion.encoders: live."`
	Encoders    string   `key:"encoders" default:"cached" oneof:"cached|live" class:"replan" doc:"Where captions are encoded: cached encodes each once, before it is needed, and keeps the states; live has the encoder's blocks before the model's, where they may be trained, placed and cut like any other."`
	Latents     string   `key:"latents" default:"cached" oneof:"cached|live" class:"replan" doc:"Where images and clips are encoded: cached encodes each once, where data are read, and keeps the latents; live has the blocks of the autoencoder's encoder before the model's, frozen and in float32, where they may be placed and cut like any other. Both give the same bits."`
	Frames      int      `key:"encode_frames" default:"0" min:"0" max:"1048576" class:"replan" doc:"Frames of latents that an autoencoder of clips encodes at a time, cached or live: memory is that of so many frames and not of the clip, and the numbers are the same. A live encoder is then one block, which no pipeline cuts; 0 encodes a clip at once."`
	Cache       string   `key:"cache" default:"" class:"free" doc:"Directory of latents and states by the content that they were made of, which runs may share; empty is latents below log.dir, off keeps none."`
	Posterior   string   `key:"posterior" default:"sample" oneof:"sample|mode" class:"fixed" doc:"What the model learns of the distribution that an autoencoder gives: numbers drawn from it, or its mode."`
	Sizes       []string `key:"sizes" class:"fixed" doc:"Sizes that images are brought to, height×width or frames×height×width in pixels, as 256x384: each takes the one nearest to its shape, is scaled to cover it and cut in the middle."`
	FPS         float64  `key:"fps" default:"16" min:"0" class:"fixed" unit:"frames a second" doc:"Rate at which clips are read; 0 takes every frame."`
	Upscale     bool     `key:"upscale" default:"true" class:"fixed" doc:"Images that are smaller than their size are scaled up; false sets them aside."`
	CaptionKey  string   `key:"caption_key" default:"caption" class:"fixed" doc:"Key of the caption in a sample's JSON; a sample's txt comes first."`
	Drop        float64  `key:"caption_dropout" default:"0.1" min:"0" max:"1" class:"fixed" doc:"Share of samples that are trained without their caption, so that sampling can be guided (arXiv:2207.12598)."`

	First    float64 `key:"first_frame" default:"0" min:"0" max:"1" class:"fixed" doc:"Share of the clips whose first frame of latents the model is given as it is, so that it learns to go on from an image as well as from noise (Wan 2.2 TI2V). Models with channels for given frames have them in every clip."`
	Changes  int     `key:"condition_images" default:"0" min:"0" max:"16" class:"fixed" doc:"Images at most that a sample has beside the one that is learnt, to be changed into it as the caption says: KEY.cond0.png, KEY.cond1.png … (Qwen-Image-Edit). Each sample has one at least; 0 learns images from captions alone."`
	Area     int     `key:"condition_area" default:"1048576" min:"1024" max:"67108864" class:"fixed" unit:"pixels" doc:"Pixels that such an image is brought to: sides are multiples of 32 that keep its shape nearly."`
	From     float64 `key:"noise_from" default:"0" min:"0" max:"1" class:"fixed" doc:"Least time, as a share of a thousand steps, of the noise levels that the model is trained at: 0.9 for the expert of high noise that begins there."`
	To       float64 `key:"noise_to" default:"0" min:"0" max:"1" class:"fixed" doc:"Time below which they lie, 0 for all. A pipeline whose model_index.json has a boundary_ratio sets both for the folder of each of its experts."`
	Experts  string  `key:"experts" default:"one" oneof:"one|both" class:"fixed" doc:"Of a pipeline with two models, each at its own levels of noise: one trains the one that model.path names, both trains both in one run."`
	Boundary float64 `key:"boundary" default:"0" min:"0" max:"1" class:"fixed" doc:"With experts: both: the time, as a share of a thousand steps, from which on levels of noise are those of the first model; 0 takes boundary_ratio of the pipeline's model_index.json."`
	Guide    float64 `key:"guidance" default:"3.5" min:"0" class:"fixed" doc:"Models that were distilled from guided ones: the guidance that they are told in training and in sampling; 3.5 is that of Flux in diffusers."`

	Times  string  `key:"times" default:"uniform" oneof:"@draws" class:"fixed" doc:"Distribution of training's noise levels."`
	Mean   float64 `key:"times_mean" default:"0" class:"fixed" doc:"logit_normal: mean."`
	Std    float64 `key:"times_std" default:"1" min:"0" class:"fixed" doc:"logit_normal: standard deviation."`
	Mode   float64 `key:"times_mode" default:"1.29" class:"fixed" doc:"mode: how much the middle is favoured."`
	Shift  float64 `key:"times_shift" default:"1" min:"0" class:"fixed" doc:"shifted and waver: shift towards noise."`
	Alpha  float64 `key:"times_alpha" default:"1.5" min:"0" class:"fixed" doc:"beta: first parameter."`
	Beta   float64 `key:"times_beta" default:"1" min:"0" class:"fixed" doc:"beta: second parameter."`
	Weight string  `key:"weight" default:"none" oneof:"@weights" class:"fixed" doc:"Weight of a sample's loss by its noise level."`
	Gamma  float64 `key:"min_snr_gamma" default:"5" min:"0" class:"fixed" doc:"min_snr: the ratio of signal to noise from which on the weight falls (arXiv:2303.09556)."`
	KL     float64 `key:"kl_weight" default:"1e-6" min:"0" class:"fixed" doc:"Autoencoders: weight of the latents' divergence from standard normal noise, summed over a picture's latents; 0 leaves it out."`
	Look   string  `key:"perceptual" default:"" class:"fixed" doc:"Autoencoders: weights of a frozen network, a file or a folder, whose features of what goes in and what comes out are compared beside the pixels: torchvision's VGG, with LPIPS' weights by channel where the folder has them (vgg.pth of its package)."`
	LookBy float64 `key:"perceptual_weight" default:"1" min:"0" class:"fixed" doc:"Autoencoders: weight of that distance."`
	Loss   string  `key:"loss" default:"squared" oneof:"squared|absolute|huber" class:"fixed" doc:"What is taken of the difference of prediction and target."`
	Border float64 `key:"huber_border" default:"0.1" min:"0" class:"fixed" doc:"huber: the difference from which on the loss is linear."`
}

// Check implements section.
func (d *Diffusion) Check(at faults) {
	for _, s := range d.Sizes {
		if _, err := ParseSize(s); err != nil {
			at.fault("diffusion.sizes", err.Error(), "write 256x384, or 17x256x384 for clips of 17 frames")
		}
	}
	if d.TrainText && d.Encoders != "live" {
		at.fault("diffusion.train_text_encoder", "states that are cached do not change", "set diffusion.encoders: live")
	}
	if d.To > 0 && d.From >= d.To {
		at.fault("diffusion.noise_from", fmt.Sprintf("%g is not below noise_to = %g", d.From, d.To), "")
	}
	if d.Loss == "huber" && d.Border == 0 {
		at.fault("diffusion.huber_border", "0 leaves nothing of the loss", "try 0.1")
	}
}

// ParseSize reads a size of images or clips: frames, height and width in pixels.
func ParseSize(text string) (size [3]int, err error) {
	words := strings.Split(strings.ReplaceAll(text, "×", "x"), "x")
	if len(words) == 2 {
		words = append([]string{"1"}, words...)
	}
	if len(words) != 3 {
		return size, fmt.Errorf("%s is no size of images", source.Quoted(text))
	}
	for i, w := range words {
		if size[i], err = strconv.Atoi(w); err != nil || size[i] < 1 || size[i] > 1<<16 {
			return size, fmt.Errorf("%s is no size of images", source.Quoted(text))
		}
	}
	return size, nil
}
