package source

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Compiler is the version of nvcc that makes the image: what it puts out, drivers from CUDA 13.0 on read.
const Compiler = "13.0.88"

// flags make the image. Sums and products are fused where the source says so only, so that a kernel's
// bits do not depend on what it is compiled together with.
var flags = []string{"-std=c++17", "-O3", "-fmad=false", "-gencode=arch=compute_80,code=sm_80",
	"-gencode=arch=compute_90a,code=sm_90a",
	"-gencode=arch=compute_80,code=compute_80", "--compress-mode=size", "-fatbin"}

// Sum describes an image: the source and the compiler that it was made of.
func Sum() string {
	return fmt.Sprintf("source %s\nnvcc %s %s\n", Hash(), Compiler, strings.Join(flags, " "))
}

// FindCompiler is the path of an nvcc of the right version, in LFACTOR_NVCC or on the path; why tells what is amiss.
func FindCompiler() (path, why string) {
	path = os.Getenv("LFACTOR_NVCC")
	if path == "" {
		path = "nvcc"
	}
	path, err := exec.LookPath(path)
	if err != nil {
		return "", "there is no nvcc"
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return "", fmt.Sprintf("%s --version: %v", path, err)
	}
	if !strings.Contains(string(out), "V"+Compiler) {
		return "", fmt.Sprintf("%s is not version %s", path, Compiler)
	}
	return path, ""
}

// Compile makes the image; said is what the assembler says of each kernel's registers and spills.
func Compile(compiler string) (image, said []byte, err error) {
	dir, err := os.MkdirTemp("", "lfactor-nvcc-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	for name, text := range All() {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, nil, err
		}
	}
	c := exec.Command(compiler, append(flags, "-Xptxas", "-v", "all.cu", "-o", "kernels.fatbin")...)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(compiler)+string(os.PathListSeparator)+os.Getenv("PATH"))
	if said, err = c.CombinedOutput(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w\n%s", compiler, err, said)
	}
	image, err = os.ReadFile(filepath.Join(dir, "kernels.fatbin"))
	return image, said, err
}
