// Gen writes the Go files of externalscaler.proto into a folder: `go run ./spec/externalscaler/gen FOLDER`.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

const (
	folder = "spec/externalscaler"
	source = "externalscaler.proto"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./spec/externalscaler/gen FOLDER")
		os.Exit(2)
	}
	if err := generate(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "cannot generate:", err)
		os.Exit(1)
	}
}

// generate runs the generators of messages and of services.
func generate(ctx context.Context, into string) error {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{folder}}, SourceInfoMode: protocompile.SourceInfoStandard}
	files, err := compiler.Compile(ctx, source)
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", source, err)
	}
	request, err := proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{source}, Parameter: proto.String("paths=source_relative"),
		ProtoFile: []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(files[0])},
	})
	if err != nil {
		return err
	}
	for _, tool := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := runTool(ctx, tool, request, into); err != nil {
			return fmt.Errorf("%s: %w", tool, err)
		}
	}
	return nil
}

// runTool runs a generator, and writes the files that it answers with.
func runTool(ctx context.Context, tool string, request []byte, into string) error {
	cmd := exec.CommandContext(ctx, "go", "tool", tool)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(request), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("%s", answer.GetError())
	}
	for _, file := range answer.File {
		if err := os.WriteFile(filepath.Join(into, "zz_generated."+filepath.Base(file.GetName())), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
