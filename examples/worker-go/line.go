package main

import (
	"context"
	"errors"
	"sync"
	"time"

	workerpb "example.com/worker/gen/dragoman/worker/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
)

// beforeWelcome is how long the server may send nothing until it has said how long it may.
const beforeWelcome = 10 * time.Second

// maxFrame is the largest frame in bytes; the server has a limit of its own.
const maxFrame = 1 << 30

// Server is where the worker connects. Key is an API key, empty without authentication; CA a file with authorities,
// empty without encryption.
type Server struct{ Address, Key, CA string }

// Line is one stream to the server: frames in and out, and heartbeats on both sides.
type Line struct {
	connection *grpc.ClientConn
	stream     grpc.BidiStreamingClient[workerpb.ConnectRequest, workerpb.ConnectResponse]
	cancel     context.CancelFunc

	mutex        sync.Mutex // a stream allows one sender at a time
	lastSent     time.Time
	lastReceived time.Time
	heartbeat    time.Duration
	lease        time.Duration
}

// Dial connects to the server.
func Dial(ctx context.Context, server Server) (*Line, error) {
	encryption := insecure.NewCredentials()
	if server.CA != "" {
		var err error
		if encryption, err = credentials.NewClientTLSFromFile(server.CA, ""); err != nil {
			return nil, err
		}
	}
	sizes := grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxFrame), grpc.MaxCallSendMsgSize(maxFrame))
	connection, err := grpc.NewClient(server.Address, grpc.WithTransportCredentials(encryption), sizes)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	if server.Key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+server.Key)
	}
	stream, err := workerpb.NewWorkerServiceClient(connection).Connect(ctx)
	if err != nil {
		cancel()
		return nil, errors.Join(err, connection.Close())
	}
	now := time.Now()
	line := &Line{connection: connection, stream: stream, cancel: cancel, lastSent: now, lastReceived: now}
	line.heartbeat, line.lease = time.Second, beforeWelcome
	go line.beat(ctx)
	return line, nil
}

// Send sends a frame. An error ends the stream, and Receive returns it.
func (l *Line) Send(frame *workerpb.ConnectRequest) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lastSent = time.Now()
	_ = l.stream.Send(frame)
}

// Receive returns the next frame, or the error that ended the stream.
func (l *Line) Receive() (*workerpb.ConnectResponse, error) {
	frame, err := l.stream.Recv()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.lastReceived = time.Now()
	if welcome := frame.GetWelcome(); welcome != nil {
		l.heartbeat, l.lease = welcome.Heartbeat.AsDuration(), welcome.Lease.AsDuration()
	}
	return frame, err
}

// Finish ends the sending half; the server then ends the stream.
func (l *Line) Finish() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	_ = l.stream.CloseSend()
}

// Close gives up the connection.
func (l *Line) Close() {
	l.cancel()
	_ = l.connection.Close()
}

// beat sends heartbeats, and ends the stream when the server has sent nothing for the lease.
func (l *Line) beat(ctx context.Context) {
	for {
		l.mutex.Lock()
		pause, isDead := l.heartbeat/2, time.Since(l.lastReceived) > l.lease
		isDue := time.Since(l.lastSent) >= pause
		l.mutex.Unlock()
		if isDead {
			l.cancel()
		} else if isDue {
			l.Send(&workerpb.ConnectRequest{Frame: &workerpb.ConnectRequest_Heartbeat{Heartbeat: &workerpb.Heartbeat{}}})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}
