package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hotseat.dev/hotseat/launcher"
	"hotseat.dev/hotseat/launcher/client"
	"hotseat.dev/hotseat/spec/launcherapi"
)

func (c *cli) chatCommand() *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "chat [flags] ID [-- QUESTION...]",
		Short: "Ask an instance, and print its answer",
		Long: `Ask an instance, and print its answer while it comes. Without a question the command
reads it from standard input. On a terminal this is a conversation: a line is a
question, and goes to the model with the conversation so far. Ctrl-D ends it.`,
		Example: `  launcher chat qwen -- What is the capital of France?
  launcher chat qwen
  git diff | launcher chat qwen`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("ID is missing; usage: %s", cmd.UseLine())
			}
			return nil
		},
		ValidArgsFunction: c.completeInstances(1),
	}
	cmd.Flags().StringVar(&keyFile, "api-key-file", "", "`FILE` with the key that the engine asks for if it was started with --api-key")
	return c.remote(cmd, func(ctx context.Context, cl *client.Client, args []string) error {
		c.asksOnly = true
		talk, err := c.talkTo(ctx, cl, args[0], keyFile)
		if err != nil {
			return err
		}
		defer talk.http.CloseIdleConnections()
		switch {
		case len(args) > 1:
			return talk.ask(ctx, strings.Join(args[1:], " "))
		case isTerminal(c.in):
			return c.converse(ctx, talk)
		}
		question, err := c.readQuestion()
		if err != nil {
			return err
		}
		return talk.ask(ctx, question)
	})
}

// maxQuestion bounds the question that is read from standard input.
const maxQuestion = 10 << 20

func (c *cli) readQuestion() (string, error) {
	if c.in == nil {
		return "", usagef("the question is missing: launcher chat ID -- QUESTION")
	}
	text, err := io.ReadAll(io.LimitReader(c.in, maxQuestion+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("cannot read the question from standard input: %w", err)
	case len(text) > maxQuestion:
		return "", usagef("the question on standard input is longer than %s", launcher.BytesText(maxQuestion))
	case len(bytes.TrimSpace(text)) == 0:
		return "", usagef("the question is missing: launcher chat ID -- QUESTION")
	}
	return string(text), nil
}

// converse asks what a person types, line by line, until the end of the input.
func (c *cli) converse(ctx context.Context, talk *talk) error {
	typed := make(chan string)
	go func() { // the read cannot be interrupted; it ends with the input or the process
		defer close(typed)
		for lines := bufio.NewScanner(c.in); lines.Scan(); {
			select {
			case typed <- lines.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		_, _ = fmt.Fprint(c.err, "> ")
		select {
		case line, more := <-typed:
			if !more {
				_, _ = fmt.Fprintln(c.err)
				return nil
			}
			if strings.TrimSpace(line) == "" {
				continue
			}
			if err := talk.ask(ctx, line); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// talk is a conversation with an instance.
type talk struct {
	id, model, url, key string
	http                *http.Client
	out                 io.Writer
	said                []message
}

// message is a part of a conversation, as OpenAI's API has it.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talkTo begins a conversation with an instance, once it is awake.
func (c *cli) talkTo(ctx context.Context, cl *client.Client, id, keyFile string) (*talk, error) {
	key, err := readKey(keyFile)
	if err != nil {
		return nil, err
	}
	instance, err := cl.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if instance, err = awaitAwake(ctx, cl, instance, newProgress(c.err)); err != nil {
		return nil, err
	}
	if launcher.State(instance.State) != launcher.Awake {
		return nil, fmt.Errorf("%s is %s; launcher swap %s wakes it", id, instance.State, id)
	}
	host, err := c.hostOf(instance)
	if err != nil {
		return nil, err
	}
	model := instance.Model
	if len(instance.ServedModelNames) > 0 {
		model = instance.ServedModelNames[0]
	}
	return &talk{
		id: id, model: model, url: "http://" + net.JoinHostPort(host, strconv.Itoa(instance.Port)) + "/v1/chat/completions",
		key: key, http: &http.Client{}, out: forPerson(c.out),
	}, nil
}

func readKey(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", usagef("cannot read the API key: %w; --api-key-file names its file", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// hostOf is where the public port of an instance is reached from here: at the
// launcher's own address where the port listens on every address.
func (c *cli) hostOf(i launcherapi.Instance) (string, error) {
	server := cmp.Or(c.server, os.Getenv(envServer), defaultServer)
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	at, err := url.Parse(server)
	if err != nil {
		return "", usagef("cannot use the address %q: %w", server, err)
	}
	here := at.Hostname() == "localhost" || net.ParseIP(at.Hostname()).IsLoopback()
	switch listens := net.ParseIP(i.Host); {
	case listens.IsUnspecified():
		return at.Hostname(), nil
	case listens.IsLoopback() && !here:
		return "", fmt.Errorf("cannot reach %s from here: its port %d is open on the launcher's machine alone (%s); run launcher chat there, or start launcher serve with --instance-host", i.InstanceID, i.Port, i.Host)
	}
	return i.Host, nil
}

// ask puts a question, writes the answer while it comes, and remembers both.
func (t *talk) ask(ctx context.Context, question string) error {
	said := append(t.said, message{"user", question})
	resp, err := t.post(ctx, map[string]any{"model": t.model, "messages": said, "stream": true})
	if err != nil {
		return fmt.Errorf("cannot ask %s: %w", t.id, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s refused the question with %s: %s", t.id, resp.Status, engineError(resp.Body))
	}
	answer, err := t.copyAnswer(resp.Body)
	if _, newline := fmt.Fprintln(t.out); err == nil {
		err = newline
	}
	t.said = append(said, message{"assistant", answer})
	return err
}

func (t *talk) post(ctx context.Context, body any) (*http.Response, error) {
	content, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if t.key != "" {
		req.Header.Set("Authorization", "Bearer "+t.key)
	}
	return t.http.Do(req)
}

// maxEvent bounds one event of an answer.
const maxEvent = 1 << 20

// copyAnswer writes the text of a streamed answer, and returns it.
func (t *talk) copyAnswer(stream io.Reader) (string, error) {
	var answer strings.Builder
	events := bufio.NewScanner(stream)
	events.Buffer(nil, maxEvent)
	for events.Scan() {
		data, isData := strings.CutPrefix(events.Text(), "data:")
		if !isData {
			continue
		}
		if data = strings.TrimSpace(data); data == "[DONE]" {
			return answer.String(), nil
		}
		text, err := textOf(data)
		if err != nil {
			return answer.String(), fmt.Errorf("%s broke off its answer: %w", t.id, err)
		}
		answer.WriteString(text)
		if _, err := io.WriteString(t.out, text); err != nil {
			return answer.String(), err
		}
	}
	return answer.String(), fmt.Errorf("%s broke off its answer: %w", t.id, cmp.Or(events.Err(), io.ErrUnexpectedEOF))
}

// textOf gives the text in one event of an answer.
func textOf(data string) (string, error) {
	var event struct {
		Choices []struct {
			Delta        message `json:"delta"`
			FinishReason string  `json:"finish_reason"`
		} `json:"choices"`
		Error *struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		return "", fmt.Errorf("cannot read an event of it: %w", err)
	}
	switch {
	case event.Error != nil:
		return "", errors.New(event.Error.Message)
	case len(event.Choices) == 0:
		return "", nil
	case event.Choices[0].FinishReason == "abort":
		return "", errors.New("the engine aborted it, as it does when it is put to sleep")
	}
	return event.Choices[0].Delta.Content, nil
}

// engineError gives the words of an engine's refusal.
func engineError(body io.Reader) string {
	content, err := io.ReadAll(io.LimitReader(body, maxEvent))
	if err != nil {
		return err.Error()
	}
	var refusal struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
		Detail string `json:"detail"`
	}
	_ = json.Unmarshal(content, &refusal) // what is no JSON is shown as it is
	return cmp.Or(refusal.Error.Message, refusal.Detail, strings.TrimSpace(string(content)))
}
