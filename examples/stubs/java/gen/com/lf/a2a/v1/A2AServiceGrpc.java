package com.lf.a2a.v1;

import static io.grpc.MethodDescriptor.generateFullMethodName;

/**
 * <pre>
 * Sends messages to an agent and follows the tasks that come of them.
 * Every method is also reachable over HTTP. The first rule of each is the published one, the
 * second the same call for one agent of several (`/{tenant}/...`). The last is the form in which
 * the agent is a Google Cloud resource name; a request there is taken as 1.0 when its
 * `A2A-Version` header says so, and as `a2a.v1` otherwise.
 * </pre>
 */
@javax.annotation.Generated(
    value = "by gRPC proto compiler",
    comments = "Source: lf/a2a/v1/a2a.proto")
@io.grpc.stub.annotations.GrpcGenerated
public final class A2AServiceGrpc {

  private A2AServiceGrpc() {}

  public static final String SERVICE_NAME = "lf.a2a.v1.A2AService";

  // Static method descriptors that strictly reflect the proto.
  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.SendMessageRequest,
      com.lf.a2a.v1.SendMessageResponse> getSendMessageMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "SendMessage",
      requestType = com.lf.a2a.v1.SendMessageRequest.class,
      responseType = com.lf.a2a.v1.SendMessageResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.SendMessageRequest,
      com.lf.a2a.v1.SendMessageResponse> getSendMessageMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.SendMessageRequest, com.lf.a2a.v1.SendMessageResponse> getSendMessageMethod;
    if ((getSendMessageMethod = A2AServiceGrpc.getSendMessageMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getSendMessageMethod = A2AServiceGrpc.getSendMessageMethod) == null) {
          A2AServiceGrpc.getSendMessageMethod = getSendMessageMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.SendMessageRequest, com.lf.a2a.v1.SendMessageResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "SendMessage"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.SendMessageRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.SendMessageResponse.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("SendMessage"))
              .build();
        }
      }
    }
    return getSendMessageMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.SendMessageRequest,
      com.lf.a2a.v1.StreamResponse> getSendStreamingMessageMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "SendStreamingMessage",
      requestType = com.lf.a2a.v1.SendMessageRequest.class,
      responseType = com.lf.a2a.v1.StreamResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.SendMessageRequest,
      com.lf.a2a.v1.StreamResponse> getSendStreamingMessageMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.SendMessageRequest, com.lf.a2a.v1.StreamResponse> getSendStreamingMessageMethod;
    if ((getSendStreamingMessageMethod = A2AServiceGrpc.getSendStreamingMessageMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getSendStreamingMessageMethod = A2AServiceGrpc.getSendStreamingMessageMethod) == null) {
          A2AServiceGrpc.getSendStreamingMessageMethod = getSendStreamingMessageMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.SendMessageRequest, com.lf.a2a.v1.StreamResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "SendStreamingMessage"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.SendMessageRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.StreamResponse.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("SendStreamingMessage"))
              .build();
        }
      }
    }
    return getSendStreamingMessageMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.GetTaskRequest,
      com.lf.a2a.v1.Task> getGetTaskMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetTask",
      requestType = com.lf.a2a.v1.GetTaskRequest.class,
      responseType = com.lf.a2a.v1.Task.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.GetTaskRequest,
      com.lf.a2a.v1.Task> getGetTaskMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.GetTaskRequest, com.lf.a2a.v1.Task> getGetTaskMethod;
    if ((getGetTaskMethod = A2AServiceGrpc.getGetTaskMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getGetTaskMethod = A2AServiceGrpc.getGetTaskMethod) == null) {
          A2AServiceGrpc.getGetTaskMethod = getGetTaskMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.GetTaskRequest, com.lf.a2a.v1.Task>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetTask"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.GetTaskRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.Task.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("GetTask"))
              .build();
        }
      }
    }
    return getGetTaskMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.ListTasksRequest,
      com.lf.a2a.v1.ListTasksResponse> getListTasksMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListTasks",
      requestType = com.lf.a2a.v1.ListTasksRequest.class,
      responseType = com.lf.a2a.v1.ListTasksResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.ListTasksRequest,
      com.lf.a2a.v1.ListTasksResponse> getListTasksMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.ListTasksRequest, com.lf.a2a.v1.ListTasksResponse> getListTasksMethod;
    if ((getListTasksMethod = A2AServiceGrpc.getListTasksMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getListTasksMethod = A2AServiceGrpc.getListTasksMethod) == null) {
          A2AServiceGrpc.getListTasksMethod = getListTasksMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.ListTasksRequest, com.lf.a2a.v1.ListTasksResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListTasks"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.ListTasksRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.ListTasksResponse.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("ListTasks"))
              .build();
        }
      }
    }
    return getListTasksMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.CancelTaskRequest,
      com.lf.a2a.v1.Task> getCancelTaskMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CancelTask",
      requestType = com.lf.a2a.v1.CancelTaskRequest.class,
      responseType = com.lf.a2a.v1.Task.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.CancelTaskRequest,
      com.lf.a2a.v1.Task> getCancelTaskMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.CancelTaskRequest, com.lf.a2a.v1.Task> getCancelTaskMethod;
    if ((getCancelTaskMethod = A2AServiceGrpc.getCancelTaskMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getCancelTaskMethod = A2AServiceGrpc.getCancelTaskMethod) == null) {
          A2AServiceGrpc.getCancelTaskMethod = getCancelTaskMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.CancelTaskRequest, com.lf.a2a.v1.Task>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CancelTask"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.CancelTaskRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.Task.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("CancelTask"))
              .build();
        }
      }
    }
    return getCancelTaskMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.SubscribeToTaskRequest,
      com.lf.a2a.v1.StreamResponse> getSubscribeToTaskMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "SubscribeToTask",
      requestType = com.lf.a2a.v1.SubscribeToTaskRequest.class,
      responseType = com.lf.a2a.v1.StreamResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.SubscribeToTaskRequest,
      com.lf.a2a.v1.StreamResponse> getSubscribeToTaskMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.SubscribeToTaskRequest, com.lf.a2a.v1.StreamResponse> getSubscribeToTaskMethod;
    if ((getSubscribeToTaskMethod = A2AServiceGrpc.getSubscribeToTaskMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getSubscribeToTaskMethod = A2AServiceGrpc.getSubscribeToTaskMethod) == null) {
          A2AServiceGrpc.getSubscribeToTaskMethod = getSubscribeToTaskMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.SubscribeToTaskRequest, com.lf.a2a.v1.StreamResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.SERVER_STREAMING)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "SubscribeToTask"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.SubscribeToTaskRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.StreamResponse.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("SubscribeToTask"))
              .build();
        }
      }
    }
    return getSubscribeToTaskMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.TaskPushNotificationConfig,
      com.lf.a2a.v1.TaskPushNotificationConfig> getCreateTaskPushNotificationConfigMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "CreateTaskPushNotificationConfig",
      requestType = com.lf.a2a.v1.TaskPushNotificationConfig.class,
      responseType = com.lf.a2a.v1.TaskPushNotificationConfig.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.TaskPushNotificationConfig,
      com.lf.a2a.v1.TaskPushNotificationConfig> getCreateTaskPushNotificationConfigMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.TaskPushNotificationConfig, com.lf.a2a.v1.TaskPushNotificationConfig> getCreateTaskPushNotificationConfigMethod;
    if ((getCreateTaskPushNotificationConfigMethod = A2AServiceGrpc.getCreateTaskPushNotificationConfigMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getCreateTaskPushNotificationConfigMethod = A2AServiceGrpc.getCreateTaskPushNotificationConfigMethod) == null) {
          A2AServiceGrpc.getCreateTaskPushNotificationConfigMethod = getCreateTaskPushNotificationConfigMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.TaskPushNotificationConfig, com.lf.a2a.v1.TaskPushNotificationConfig>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "CreateTaskPushNotificationConfig"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.TaskPushNotificationConfig.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.TaskPushNotificationConfig.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("CreateTaskPushNotificationConfig"))
              .build();
        }
      }
    }
    return getCreateTaskPushNotificationConfigMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.GetTaskPushNotificationConfigRequest,
      com.lf.a2a.v1.TaskPushNotificationConfig> getGetTaskPushNotificationConfigMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetTaskPushNotificationConfig",
      requestType = com.lf.a2a.v1.GetTaskPushNotificationConfigRequest.class,
      responseType = com.lf.a2a.v1.TaskPushNotificationConfig.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.GetTaskPushNotificationConfigRequest,
      com.lf.a2a.v1.TaskPushNotificationConfig> getGetTaskPushNotificationConfigMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.GetTaskPushNotificationConfigRequest, com.lf.a2a.v1.TaskPushNotificationConfig> getGetTaskPushNotificationConfigMethod;
    if ((getGetTaskPushNotificationConfigMethod = A2AServiceGrpc.getGetTaskPushNotificationConfigMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getGetTaskPushNotificationConfigMethod = A2AServiceGrpc.getGetTaskPushNotificationConfigMethod) == null) {
          A2AServiceGrpc.getGetTaskPushNotificationConfigMethod = getGetTaskPushNotificationConfigMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.GetTaskPushNotificationConfigRequest, com.lf.a2a.v1.TaskPushNotificationConfig>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetTaskPushNotificationConfig"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.GetTaskPushNotificationConfigRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.TaskPushNotificationConfig.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("GetTaskPushNotificationConfig"))
              .build();
        }
      }
    }
    return getGetTaskPushNotificationConfigMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest,
      com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse> getListTaskPushNotificationConfigsMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "ListTaskPushNotificationConfigs",
      requestType = com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest.class,
      responseType = com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest,
      com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse> getListTaskPushNotificationConfigsMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest, com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse> getListTaskPushNotificationConfigsMethod;
    if ((getListTaskPushNotificationConfigsMethod = A2AServiceGrpc.getListTaskPushNotificationConfigsMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getListTaskPushNotificationConfigsMethod = A2AServiceGrpc.getListTaskPushNotificationConfigsMethod) == null) {
          A2AServiceGrpc.getListTaskPushNotificationConfigsMethod = getListTaskPushNotificationConfigsMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest, com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "ListTaskPushNotificationConfigs"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("ListTaskPushNotificationConfigs"))
              .build();
        }
      }
    }
    return getListTaskPushNotificationConfigsMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.GetExtendedAgentCardRequest,
      com.lf.a2a.v1.AgentCard> getGetExtendedAgentCardMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "GetExtendedAgentCard",
      requestType = com.lf.a2a.v1.GetExtendedAgentCardRequest.class,
      responseType = com.lf.a2a.v1.AgentCard.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.GetExtendedAgentCardRequest,
      com.lf.a2a.v1.AgentCard> getGetExtendedAgentCardMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.GetExtendedAgentCardRequest, com.lf.a2a.v1.AgentCard> getGetExtendedAgentCardMethod;
    if ((getGetExtendedAgentCardMethod = A2AServiceGrpc.getGetExtendedAgentCardMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getGetExtendedAgentCardMethod = A2AServiceGrpc.getGetExtendedAgentCardMethod) == null) {
          A2AServiceGrpc.getGetExtendedAgentCardMethod = getGetExtendedAgentCardMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.GetExtendedAgentCardRequest, com.lf.a2a.v1.AgentCard>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "GetExtendedAgentCard"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.GetExtendedAgentCardRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.AgentCard.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("GetExtendedAgentCard"))
              .build();
        }
      }
    }
    return getGetExtendedAgentCardMethod;
  }

  private static volatile io.grpc.MethodDescriptor<com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest,
      com.google.protobuf.Empty> getDeleteTaskPushNotificationConfigMethod;

  @io.grpc.stub.annotations.RpcMethod(
      fullMethodName = SERVICE_NAME + '/' + "DeleteTaskPushNotificationConfig",
      requestType = com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest.class,
      responseType = com.google.protobuf.Empty.class,
      methodType = io.grpc.MethodDescriptor.MethodType.UNARY)
  public static io.grpc.MethodDescriptor<com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest,
      com.google.protobuf.Empty> getDeleteTaskPushNotificationConfigMethod() {
    io.grpc.MethodDescriptor<com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest, com.google.protobuf.Empty> getDeleteTaskPushNotificationConfigMethod;
    if ((getDeleteTaskPushNotificationConfigMethod = A2AServiceGrpc.getDeleteTaskPushNotificationConfigMethod) == null) {
      synchronized (A2AServiceGrpc.class) {
        if ((getDeleteTaskPushNotificationConfigMethod = A2AServiceGrpc.getDeleteTaskPushNotificationConfigMethod) == null) {
          A2AServiceGrpc.getDeleteTaskPushNotificationConfigMethod = getDeleteTaskPushNotificationConfigMethod =
              io.grpc.MethodDescriptor.<com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest, com.google.protobuf.Empty>newBuilder()
              .setType(io.grpc.MethodDescriptor.MethodType.UNARY)
              .setFullMethodName(generateFullMethodName(SERVICE_NAME, "DeleteTaskPushNotificationConfig"))
              .setSampledToLocalTracing(true)
              .setRequestMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest.getDefaultInstance()))
              .setResponseMarshaller(io.grpc.protobuf.ProtoUtils.marshaller(
                  com.google.protobuf.Empty.getDefaultInstance()))
              .setSchemaDescriptor(new A2AServiceMethodDescriptorSupplier("DeleteTaskPushNotificationConfig"))
              .build();
        }
      }
    }
    return getDeleteTaskPushNotificationConfigMethod;
  }

  /**
   * Creates a new async stub that supports all call types for the service
   */
  public static A2AServiceStub newStub(io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<A2AServiceStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<A2AServiceStub>() {
        @java.lang.Override
        public A2AServiceStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new A2AServiceStub(channel, callOptions);
        }
      };
    return A2AServiceStub.newStub(factory, channel);
  }

  /**
   * Creates a new blocking-style stub that supports unary and streaming output calls on the service
   */
  public static A2AServiceBlockingStub newBlockingStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<A2AServiceBlockingStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<A2AServiceBlockingStub>() {
        @java.lang.Override
        public A2AServiceBlockingStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new A2AServiceBlockingStub(channel, callOptions);
        }
      };
    return A2AServiceBlockingStub.newStub(factory, channel);
  }

  /**
   * Creates a new ListenableFuture-style stub that supports unary calls on the service
   */
  public static A2AServiceFutureStub newFutureStub(
      io.grpc.Channel channel) {
    io.grpc.stub.AbstractStub.StubFactory<A2AServiceFutureStub> factory =
      new io.grpc.stub.AbstractStub.StubFactory<A2AServiceFutureStub>() {
        @java.lang.Override
        public A2AServiceFutureStub newStub(io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
          return new A2AServiceFutureStub(channel, callOptions);
        }
      };
    return A2AServiceFutureStub.newStub(factory, channel);
  }

  /**
   * <pre>
   * Sends messages to an agent and follows the tasks that come of them.
   * Every method is also reachable over HTTP. The first rule of each is the published one, the
   * second the same call for one agent of several (`/{tenant}/...`). The last is the form in which
   * the agent is a Google Cloud resource name; a request there is taken as 1.0 when its
   * `A2A-Version` header says so, and as `a2a.v1` otherwise.
   * </pre>
   */
  public static abstract class A2AServiceImplBase implements io.grpc.BindableService {

    /**
     * <pre>
     * Hands a message to the agent, as the start of a new task or as the next turn of one that is
     * not finished.
     * The answer is either the task, or a single message of an agent that needs no task for it. A
     * task that is answered is stored: it can be fetched, followed and canceled from then on, also
     * after a restart of the server.
     * Whether the call waits for the agent is up to the configuration. Even a call that waits gives
     * up at the server's limit, and answers with the task as it is then.
     * - NOT_FOUND: the message names a task that does not exist.
     * - INVALID_ARGUMENT: a required field is empty, or the task and the context that are named do
     *   not belong together.
     * - INVALID_ARGUMENT with reason CONTENT_TYPE_NOT_SUPPORTED: the agent does not take this kind
     *   of content.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the task is finished and takes no
     *   more messages.
     * </pre>
     */
    public void sendMessage(com.lf.a2a.v1.SendMessageRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.SendMessageResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getSendMessageMethod(), responseObserver);
    }

    /**
     * <pre>
     * Hands a message to the agent like SendMessage, and streams what happens.
     * The stream begins with the task as it was accepted, or holds one message and nothing else.
     * Status and artifact updates follow in the order in which the agent made them, each of them
     * stored before it is sent. The stream ends when the agent's turn does: at a final state, or
     * when the agent waits for the client. A client that goes away changes nothing for the task; it
     * can subscribe again.
     * </pre>
     */
    public void sendStreamingMessage(com.lf.a2a.v1.SendMessageRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.StreamResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getSendStreamingMessageMethod(), responseObserver);
    }

    /**
     * <pre>
     * Reads a task as it is now.
     * Reading has no effect, and what is read is never older than any event a stream of the same
     * server has shown.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * </pre>
     */
    public void getTask(com.lf.a2a.v1.GetTaskRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.Task> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetTaskMethod(), responseObserver);
    }

    /**
     * <pre>
     * Lists the caller's tasks of this agent, most recently changed first.
     * A page is a view of one moment; a task that changes while a client pages may be met twice or
     * not at all.
     * - INVALID_ARGUMENT: a page size outside 1 to 100, a token that was not made by this server for
     *   these filters, or a negative history length.
     * </pre>
     */
    public void listTasks(com.lf.a2a.v1.ListTasksRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.ListTasksResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListTasksMethod(), responseObserver);
    }

    /**
     * <pre>
     * Asks the agent to stop working on a task.
     * The answer shows the task after the attempt. Its state is a canceled one only if the work has
     * really stopped; an agent that needs longer is still WORKING in the answer, and the state
     * follows. Whoever ends the task first, agent or caller, decides how it ended.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason TASK_NOT_CANCELABLE: the task is already finished, or its
     *   agent refuses to be canceled.
     * </pre>
     */
    public void cancelTask(com.lf.a2a.v1.CancelTaskRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.Task> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCancelTaskMethod(), responseObserver);
    }

    /**
     * <pre>
     * Follows a task that exists: its present form first, then every later update, until it is
     * finished.
     * Any number of subscribers see the same updates in the same order. A task that waits for input
     * keeps the stream open.
     * The published rule is a GET while its prose says POST; both are served, the POST with or
     * without a body.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the task is finished; read it with
     *   GetTask.
     * </pre>
     */
    public void subscribeToTask(com.lf.a2a.v1.SubscribeToTaskRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.StreamResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getSubscribeToTaskMethod(), responseObserver);
    }

    /**
     * <pre>
     * Registers a webhook for a task, or replaces the one with the same id.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - INVALID_ARGUMENT: the URL is missing or may not be called by this server.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void createTaskPushNotificationConfig(com.lf.a2a.v1.TaskPushNotificationConfig request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.TaskPushNotificationConfig> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getCreateTaskPushNotificationConfigMethod(), responseObserver);
    }

    /**
     * <pre>
     * Reads one webhook of a task.
     * - NOT_FOUND: there is no such task or no such configuration.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void getTaskPushNotificationConfig(com.lf.a2a.v1.GetTaskPushNotificationConfigRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.TaskPushNotificationConfig> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetTaskPushNotificationConfigMethod(), responseObserver);
    }

    /**
     * <pre>
     * Lists the webhooks of a task.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void listTaskPushNotificationConfigs(com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getListTaskPushNotificationConfigsMethod(), responseObserver);
    }

    /**
     * <pre>
     * Reads the card that the agent shows to authenticated callers.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the public card does not declare an
     *   extended one.
     * - FAILED_PRECONDITION with reason EXTENDED_AGENT_CARD_NOT_CONFIGURED: it is declared and there
     *   is none.
     * </pre>
     */
    public void getExtendedAgentCard(com.lf.a2a.v1.GetExtendedAgentCardRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.AgentCard> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getGetExtendedAgentCardMethod(), responseObserver);
    }

    /**
     * <pre>
     * Removes one webhook of a task for good. Removing one that is already gone succeeds.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void deleteTaskPushNotificationConfig(com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest request,
        io.grpc.stub.StreamObserver<com.google.protobuf.Empty> responseObserver) {
      io.grpc.stub.ServerCalls.asyncUnimplementedUnaryCall(getDeleteTaskPushNotificationConfigMethod(), responseObserver);
    }

    @java.lang.Override public final io.grpc.ServerServiceDefinition bindService() {
      return io.grpc.ServerServiceDefinition.builder(getServiceDescriptor())
          .addMethod(
            getSendMessageMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.SendMessageRequest,
                com.lf.a2a.v1.SendMessageResponse>(
                  this, METHODID_SEND_MESSAGE)))
          .addMethod(
            getSendStreamingMessageMethod(),
            io.grpc.stub.ServerCalls.asyncServerStreamingCall(
              new MethodHandlers<
                com.lf.a2a.v1.SendMessageRequest,
                com.lf.a2a.v1.StreamResponse>(
                  this, METHODID_SEND_STREAMING_MESSAGE)))
          .addMethod(
            getGetTaskMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.GetTaskRequest,
                com.lf.a2a.v1.Task>(
                  this, METHODID_GET_TASK)))
          .addMethod(
            getListTasksMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.ListTasksRequest,
                com.lf.a2a.v1.ListTasksResponse>(
                  this, METHODID_LIST_TASKS)))
          .addMethod(
            getCancelTaskMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.CancelTaskRequest,
                com.lf.a2a.v1.Task>(
                  this, METHODID_CANCEL_TASK)))
          .addMethod(
            getSubscribeToTaskMethod(),
            io.grpc.stub.ServerCalls.asyncServerStreamingCall(
              new MethodHandlers<
                com.lf.a2a.v1.SubscribeToTaskRequest,
                com.lf.a2a.v1.StreamResponse>(
                  this, METHODID_SUBSCRIBE_TO_TASK)))
          .addMethod(
            getCreateTaskPushNotificationConfigMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.TaskPushNotificationConfig,
                com.lf.a2a.v1.TaskPushNotificationConfig>(
                  this, METHODID_CREATE_TASK_PUSH_NOTIFICATION_CONFIG)))
          .addMethod(
            getGetTaskPushNotificationConfigMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.GetTaskPushNotificationConfigRequest,
                com.lf.a2a.v1.TaskPushNotificationConfig>(
                  this, METHODID_GET_TASK_PUSH_NOTIFICATION_CONFIG)))
          .addMethod(
            getListTaskPushNotificationConfigsMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest,
                com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse>(
                  this, METHODID_LIST_TASK_PUSH_NOTIFICATION_CONFIGS)))
          .addMethod(
            getGetExtendedAgentCardMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.GetExtendedAgentCardRequest,
                com.lf.a2a.v1.AgentCard>(
                  this, METHODID_GET_EXTENDED_AGENT_CARD)))
          .addMethod(
            getDeleteTaskPushNotificationConfigMethod(),
            io.grpc.stub.ServerCalls.asyncUnaryCall(
              new MethodHandlers<
                com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest,
                com.google.protobuf.Empty>(
                  this, METHODID_DELETE_TASK_PUSH_NOTIFICATION_CONFIG)))
          .build();
    }
  }

  /**
   * <pre>
   * Sends messages to an agent and follows the tasks that come of them.
   * Every method is also reachable over HTTP. The first rule of each is the published one, the
   * second the same call for one agent of several (`/{tenant}/...`). The last is the form in which
   * the agent is a Google Cloud resource name; a request there is taken as 1.0 when its
   * `A2A-Version` header says so, and as `a2a.v1` otherwise.
   * </pre>
   */
  public static final class A2AServiceStub extends io.grpc.stub.AbstractAsyncStub<A2AServiceStub> {
    private A2AServiceStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected A2AServiceStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new A2AServiceStub(channel, callOptions);
    }

    /**
     * <pre>
     * Hands a message to the agent, as the start of a new task or as the next turn of one that is
     * not finished.
     * The answer is either the task, or a single message of an agent that needs no task for it. A
     * task that is answered is stored: it can be fetched, followed and canceled from then on, also
     * after a restart of the server.
     * Whether the call waits for the agent is up to the configuration. Even a call that waits gives
     * up at the server's limit, and answers with the task as it is then.
     * - NOT_FOUND: the message names a task that does not exist.
     * - INVALID_ARGUMENT: a required field is empty, or the task and the context that are named do
     *   not belong together.
     * - INVALID_ARGUMENT with reason CONTENT_TYPE_NOT_SUPPORTED: the agent does not take this kind
     *   of content.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the task is finished and takes no
     *   more messages.
     * </pre>
     */
    public void sendMessage(com.lf.a2a.v1.SendMessageRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.SendMessageResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getSendMessageMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Hands a message to the agent like SendMessage, and streams what happens.
     * The stream begins with the task as it was accepted, or holds one message and nothing else.
     * Status and artifact updates follow in the order in which the agent made them, each of them
     * stored before it is sent. The stream ends when the agent's turn does: at a final state, or
     * when the agent waits for the client. A client that goes away changes nothing for the task; it
     * can subscribe again.
     * </pre>
     */
    public void sendStreamingMessage(com.lf.a2a.v1.SendMessageRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.StreamResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncServerStreamingCall(
          getChannel().newCall(getSendStreamingMessageMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Reads a task as it is now.
     * Reading has no effect, and what is read is never older than any event a stream of the same
     * server has shown.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * </pre>
     */
    public void getTask(com.lf.a2a.v1.GetTaskRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.Task> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetTaskMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Lists the caller's tasks of this agent, most recently changed first.
     * A page is a view of one moment; a task that changes while a client pages may be met twice or
     * not at all.
     * - INVALID_ARGUMENT: a page size outside 1 to 100, a token that was not made by this server for
     *   these filters, or a negative history length.
     * </pre>
     */
    public void listTasks(com.lf.a2a.v1.ListTasksRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.ListTasksResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListTasksMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Asks the agent to stop working on a task.
     * The answer shows the task after the attempt. Its state is a canceled one only if the work has
     * really stopped; an agent that needs longer is still WORKING in the answer, and the state
     * follows. Whoever ends the task first, agent or caller, decides how it ended.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason TASK_NOT_CANCELABLE: the task is already finished, or its
     *   agent refuses to be canceled.
     * </pre>
     */
    public void cancelTask(com.lf.a2a.v1.CancelTaskRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.Task> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCancelTaskMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Follows a task that exists: its present form first, then every later update, until it is
     * finished.
     * Any number of subscribers see the same updates in the same order. A task that waits for input
     * keeps the stream open.
     * The published rule is a GET while its prose says POST; both are served, the POST with or
     * without a body.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the task is finished; read it with
     *   GetTask.
     * </pre>
     */
    public void subscribeToTask(com.lf.a2a.v1.SubscribeToTaskRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.StreamResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncServerStreamingCall(
          getChannel().newCall(getSubscribeToTaskMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Registers a webhook for a task, or replaces the one with the same id.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - INVALID_ARGUMENT: the URL is missing or may not be called by this server.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void createTaskPushNotificationConfig(com.lf.a2a.v1.TaskPushNotificationConfig request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.TaskPushNotificationConfig> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getCreateTaskPushNotificationConfigMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Reads one webhook of a task.
     * - NOT_FOUND: there is no such task or no such configuration.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void getTaskPushNotificationConfig(com.lf.a2a.v1.GetTaskPushNotificationConfigRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.TaskPushNotificationConfig> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetTaskPushNotificationConfigMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Lists the webhooks of a task.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void listTaskPushNotificationConfigs(com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getListTaskPushNotificationConfigsMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Reads the card that the agent shows to authenticated callers.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the public card does not declare an
     *   extended one.
     * - FAILED_PRECONDITION with reason EXTENDED_AGENT_CARD_NOT_CONFIGURED: it is declared and there
     *   is none.
     * </pre>
     */
    public void getExtendedAgentCard(com.lf.a2a.v1.GetExtendedAgentCardRequest request,
        io.grpc.stub.StreamObserver<com.lf.a2a.v1.AgentCard> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getGetExtendedAgentCardMethod(), getCallOptions()), request, responseObserver);
    }

    /**
     * <pre>
     * Removes one webhook of a task for good. Removing one that is already gone succeeds.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public void deleteTaskPushNotificationConfig(com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest request,
        io.grpc.stub.StreamObserver<com.google.protobuf.Empty> responseObserver) {
      io.grpc.stub.ClientCalls.asyncUnaryCall(
          getChannel().newCall(getDeleteTaskPushNotificationConfigMethod(), getCallOptions()), request, responseObserver);
    }
  }

  /**
   * <pre>
   * Sends messages to an agent and follows the tasks that come of them.
   * Every method is also reachable over HTTP. The first rule of each is the published one, the
   * second the same call for one agent of several (`/{tenant}/...`). The last is the form in which
   * the agent is a Google Cloud resource name; a request there is taken as 1.0 when its
   * `A2A-Version` header says so, and as `a2a.v1` otherwise.
   * </pre>
   */
  public static final class A2AServiceBlockingStub extends io.grpc.stub.AbstractBlockingStub<A2AServiceBlockingStub> {
    private A2AServiceBlockingStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected A2AServiceBlockingStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new A2AServiceBlockingStub(channel, callOptions);
    }

    /**
     * <pre>
     * Hands a message to the agent, as the start of a new task or as the next turn of one that is
     * not finished.
     * The answer is either the task, or a single message of an agent that needs no task for it. A
     * task that is answered is stored: it can be fetched, followed and canceled from then on, also
     * after a restart of the server.
     * Whether the call waits for the agent is up to the configuration. Even a call that waits gives
     * up at the server's limit, and answers with the task as it is then.
     * - NOT_FOUND: the message names a task that does not exist.
     * - INVALID_ARGUMENT: a required field is empty, or the task and the context that are named do
     *   not belong together.
     * - INVALID_ARGUMENT with reason CONTENT_TYPE_NOT_SUPPORTED: the agent does not take this kind
     *   of content.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the task is finished and takes no
     *   more messages.
     * </pre>
     */
    public com.lf.a2a.v1.SendMessageResponse sendMessage(com.lf.a2a.v1.SendMessageRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getSendMessageMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Hands a message to the agent like SendMessage, and streams what happens.
     * The stream begins with the task as it was accepted, or holds one message and nothing else.
     * Status and artifact updates follow in the order in which the agent made them, each of them
     * stored before it is sent. The stream ends when the agent's turn does: at a final state, or
     * when the agent waits for the client. A client that goes away changes nothing for the task; it
     * can subscribe again.
     * </pre>
     */
    public java.util.Iterator<com.lf.a2a.v1.StreamResponse> sendStreamingMessage(
        com.lf.a2a.v1.SendMessageRequest request) {
      return io.grpc.stub.ClientCalls.blockingServerStreamingCall(
          getChannel(), getSendStreamingMessageMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Reads a task as it is now.
     * Reading has no effect, and what is read is never older than any event a stream of the same
     * server has shown.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * </pre>
     */
    public com.lf.a2a.v1.Task getTask(com.lf.a2a.v1.GetTaskRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetTaskMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Lists the caller's tasks of this agent, most recently changed first.
     * A page is a view of one moment; a task that changes while a client pages may be met twice or
     * not at all.
     * - INVALID_ARGUMENT: a page size outside 1 to 100, a token that was not made by this server for
     *   these filters, or a negative history length.
     * </pre>
     */
    public com.lf.a2a.v1.ListTasksResponse listTasks(com.lf.a2a.v1.ListTasksRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListTasksMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Asks the agent to stop working on a task.
     * The answer shows the task after the attempt. Its state is a canceled one only if the work has
     * really stopped; an agent that needs longer is still WORKING in the answer, and the state
     * follows. Whoever ends the task first, agent or caller, decides how it ended.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason TASK_NOT_CANCELABLE: the task is already finished, or its
     *   agent refuses to be canceled.
     * </pre>
     */
    public com.lf.a2a.v1.Task cancelTask(com.lf.a2a.v1.CancelTaskRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCancelTaskMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Follows a task that exists: its present form first, then every later update, until it is
     * finished.
     * Any number of subscribers see the same updates in the same order. A task that waits for input
     * keeps the stream open.
     * The published rule is a GET while its prose says POST; both are served, the POST with or
     * without a body.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the task is finished; read it with
     *   GetTask.
     * </pre>
     */
    public java.util.Iterator<com.lf.a2a.v1.StreamResponse> subscribeToTask(
        com.lf.a2a.v1.SubscribeToTaskRequest request) {
      return io.grpc.stub.ClientCalls.blockingServerStreamingCall(
          getChannel(), getSubscribeToTaskMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Registers a webhook for a task, or replaces the one with the same id.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - INVALID_ARGUMENT: the URL is missing or may not be called by this server.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.lf.a2a.v1.TaskPushNotificationConfig createTaskPushNotificationConfig(com.lf.a2a.v1.TaskPushNotificationConfig request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getCreateTaskPushNotificationConfigMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Reads one webhook of a task.
     * - NOT_FOUND: there is no such task or no such configuration.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.lf.a2a.v1.TaskPushNotificationConfig getTaskPushNotificationConfig(com.lf.a2a.v1.GetTaskPushNotificationConfigRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetTaskPushNotificationConfigMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Lists the webhooks of a task.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse listTaskPushNotificationConfigs(com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getListTaskPushNotificationConfigsMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Reads the card that the agent shows to authenticated callers.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the public card does not declare an
     *   extended one.
     * - FAILED_PRECONDITION with reason EXTENDED_AGENT_CARD_NOT_CONFIGURED: it is declared and there
     *   is none.
     * </pre>
     */
    public com.lf.a2a.v1.AgentCard getExtendedAgentCard(com.lf.a2a.v1.GetExtendedAgentCardRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getGetExtendedAgentCardMethod(), getCallOptions(), request);
    }

    /**
     * <pre>
     * Removes one webhook of a task for good. Removing one that is already gone succeeds.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.google.protobuf.Empty deleteTaskPushNotificationConfig(com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest request) {
      return io.grpc.stub.ClientCalls.blockingUnaryCall(
          getChannel(), getDeleteTaskPushNotificationConfigMethod(), getCallOptions(), request);
    }
  }

  /**
   * <pre>
   * Sends messages to an agent and follows the tasks that come of them.
   * Every method is also reachable over HTTP. The first rule of each is the published one, the
   * second the same call for one agent of several (`/{tenant}/...`). The last is the form in which
   * the agent is a Google Cloud resource name; a request there is taken as 1.0 when its
   * `A2A-Version` header says so, and as `a2a.v1` otherwise.
   * </pre>
   */
  public static final class A2AServiceFutureStub extends io.grpc.stub.AbstractFutureStub<A2AServiceFutureStub> {
    private A2AServiceFutureStub(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      super(channel, callOptions);
    }

    @java.lang.Override
    protected A2AServiceFutureStub build(
        io.grpc.Channel channel, io.grpc.CallOptions callOptions) {
      return new A2AServiceFutureStub(channel, callOptions);
    }

    /**
     * <pre>
     * Hands a message to the agent, as the start of a new task or as the next turn of one that is
     * not finished.
     * The answer is either the task, or a single message of an agent that needs no task for it. A
     * task that is answered is stored: it can be fetched, followed and canceled from then on, also
     * after a restart of the server.
     * Whether the call waits for the agent is up to the configuration. Even a call that waits gives
     * up at the server's limit, and answers with the task as it is then.
     * - NOT_FOUND: the message names a task that does not exist.
     * - INVALID_ARGUMENT: a required field is empty, or the task and the context that are named do
     *   not belong together.
     * - INVALID_ARGUMENT with reason CONTENT_TYPE_NOT_SUPPORTED: the agent does not take this kind
     *   of content.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the task is finished and takes no
     *   more messages.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.SendMessageResponse> sendMessage(
        com.lf.a2a.v1.SendMessageRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getSendMessageMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Reads a task as it is now.
     * Reading has no effect, and what is read is never older than any event a stream of the same
     * server has shown.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.Task> getTask(
        com.lf.a2a.v1.GetTaskRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetTaskMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Lists the caller's tasks of this agent, most recently changed first.
     * A page is a view of one moment; a task that changes while a client pages may be met twice or
     * not at all.
     * - INVALID_ARGUMENT: a page size outside 1 to 100, a token that was not made by this server for
     *   these filters, or a negative history length.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.ListTasksResponse> listTasks(
        com.lf.a2a.v1.ListTasksRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListTasksMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Asks the agent to stop working on a task.
     * The answer shows the task after the attempt. Its state is a canceled one only if the work has
     * really stopped; an agent that needs longer is still WORKING in the answer, and the state
     * follows. Whoever ends the task first, agent or caller, decides how it ended.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason TASK_NOT_CANCELABLE: the task is already finished, or its
     *   agent refuses to be canceled.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.Task> cancelTask(
        com.lf.a2a.v1.CancelTaskRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCancelTaskMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Registers a webhook for a task, or replaces the one with the same id.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - INVALID_ARGUMENT: the URL is missing or may not be called by this server.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.TaskPushNotificationConfig> createTaskPushNotificationConfig(
        com.lf.a2a.v1.TaskPushNotificationConfig request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getCreateTaskPushNotificationConfigMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Reads one webhook of a task.
     * - NOT_FOUND: there is no such task or no such configuration.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.TaskPushNotificationConfig> getTaskPushNotificationConfig(
        com.lf.a2a.v1.GetTaskPushNotificationConfigRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetTaskPushNotificationConfigMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Lists the webhooks of a task.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse> listTaskPushNotificationConfigs(
        com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getListTaskPushNotificationConfigsMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Reads the card that the agent shows to authenticated callers.
     * - FAILED_PRECONDITION with reason UNSUPPORTED_OPERATION: the public card does not declare an
     *   extended one.
     * - FAILED_PRECONDITION with reason EXTENDED_AGENT_CARD_NOT_CONFIGURED: it is declared and there
     *   is none.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.lf.a2a.v1.AgentCard> getExtendedAgentCard(
        com.lf.a2a.v1.GetExtendedAgentCardRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getGetExtendedAgentCardMethod(), getCallOptions()), request);
    }

    /**
     * <pre>
     * Removes one webhook of a task for good. Removing one that is already gone succeeds.
     * - NOT_FOUND: there is no such task, or it is not the caller's.
     * - FAILED_PRECONDITION with reason PUSH_NOTIFICATION_NOT_SUPPORTED: the agent's card does not
     *   offer push notifications.
     * </pre>
     */
    public com.google.common.util.concurrent.ListenableFuture<com.google.protobuf.Empty> deleteTaskPushNotificationConfig(
        com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest request) {
      return io.grpc.stub.ClientCalls.futureUnaryCall(
          getChannel().newCall(getDeleteTaskPushNotificationConfigMethod(), getCallOptions()), request);
    }
  }

  private static final int METHODID_SEND_MESSAGE = 0;
  private static final int METHODID_SEND_STREAMING_MESSAGE = 1;
  private static final int METHODID_GET_TASK = 2;
  private static final int METHODID_LIST_TASKS = 3;
  private static final int METHODID_CANCEL_TASK = 4;
  private static final int METHODID_SUBSCRIBE_TO_TASK = 5;
  private static final int METHODID_CREATE_TASK_PUSH_NOTIFICATION_CONFIG = 6;
  private static final int METHODID_GET_TASK_PUSH_NOTIFICATION_CONFIG = 7;
  private static final int METHODID_LIST_TASK_PUSH_NOTIFICATION_CONFIGS = 8;
  private static final int METHODID_GET_EXTENDED_AGENT_CARD = 9;
  private static final int METHODID_DELETE_TASK_PUSH_NOTIFICATION_CONFIG = 10;

  private static final class MethodHandlers<Req, Resp> implements
      io.grpc.stub.ServerCalls.UnaryMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ServerStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.ClientStreamingMethod<Req, Resp>,
      io.grpc.stub.ServerCalls.BidiStreamingMethod<Req, Resp> {
    private final A2AServiceImplBase serviceImpl;
    private final int methodId;

    MethodHandlers(A2AServiceImplBase serviceImpl, int methodId) {
      this.serviceImpl = serviceImpl;
      this.methodId = methodId;
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public void invoke(Req request, io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        case METHODID_SEND_MESSAGE:
          serviceImpl.sendMessage((com.lf.a2a.v1.SendMessageRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.SendMessageResponse>) responseObserver);
          break;
        case METHODID_SEND_STREAMING_MESSAGE:
          serviceImpl.sendStreamingMessage((com.lf.a2a.v1.SendMessageRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.StreamResponse>) responseObserver);
          break;
        case METHODID_GET_TASK:
          serviceImpl.getTask((com.lf.a2a.v1.GetTaskRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.Task>) responseObserver);
          break;
        case METHODID_LIST_TASKS:
          serviceImpl.listTasks((com.lf.a2a.v1.ListTasksRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.ListTasksResponse>) responseObserver);
          break;
        case METHODID_CANCEL_TASK:
          serviceImpl.cancelTask((com.lf.a2a.v1.CancelTaskRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.Task>) responseObserver);
          break;
        case METHODID_SUBSCRIBE_TO_TASK:
          serviceImpl.subscribeToTask((com.lf.a2a.v1.SubscribeToTaskRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.StreamResponse>) responseObserver);
          break;
        case METHODID_CREATE_TASK_PUSH_NOTIFICATION_CONFIG:
          serviceImpl.createTaskPushNotificationConfig((com.lf.a2a.v1.TaskPushNotificationConfig) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.TaskPushNotificationConfig>) responseObserver);
          break;
        case METHODID_GET_TASK_PUSH_NOTIFICATION_CONFIG:
          serviceImpl.getTaskPushNotificationConfig((com.lf.a2a.v1.GetTaskPushNotificationConfigRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.TaskPushNotificationConfig>) responseObserver);
          break;
        case METHODID_LIST_TASK_PUSH_NOTIFICATION_CONFIGS:
          serviceImpl.listTaskPushNotificationConfigs((com.lf.a2a.v1.ListTaskPushNotificationConfigsRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.ListTaskPushNotificationConfigsResponse>) responseObserver);
          break;
        case METHODID_GET_EXTENDED_AGENT_CARD:
          serviceImpl.getExtendedAgentCard((com.lf.a2a.v1.GetExtendedAgentCardRequest) request,
              (io.grpc.stub.StreamObserver<com.lf.a2a.v1.AgentCard>) responseObserver);
          break;
        case METHODID_DELETE_TASK_PUSH_NOTIFICATION_CONFIG:
          serviceImpl.deleteTaskPushNotificationConfig((com.lf.a2a.v1.DeleteTaskPushNotificationConfigRequest) request,
              (io.grpc.stub.StreamObserver<com.google.protobuf.Empty>) responseObserver);
          break;
        default:
          throw new AssertionError();
      }
    }

    @java.lang.Override
    @java.lang.SuppressWarnings("unchecked")
    public io.grpc.stub.StreamObserver<Req> invoke(
        io.grpc.stub.StreamObserver<Resp> responseObserver) {
      switch (methodId) {
        default:
          throw new AssertionError();
      }
    }
  }

  private static abstract class A2AServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoFileDescriptorSupplier, io.grpc.protobuf.ProtoServiceDescriptorSupplier {
    A2AServiceBaseDescriptorSupplier() {}

    @java.lang.Override
    public com.google.protobuf.Descriptors.FileDescriptor getFileDescriptor() {
      return com.lf.a2a.v1.A2aProto.getDescriptor();
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.ServiceDescriptor getServiceDescriptor() {
      return getFileDescriptor().findServiceByName("A2AService");
    }
  }

  private static final class A2AServiceFileDescriptorSupplier
      extends A2AServiceBaseDescriptorSupplier {
    A2AServiceFileDescriptorSupplier() {}
  }

  private static final class A2AServiceMethodDescriptorSupplier
      extends A2AServiceBaseDescriptorSupplier
      implements io.grpc.protobuf.ProtoMethodDescriptorSupplier {
    private final String methodName;

    A2AServiceMethodDescriptorSupplier(String methodName) {
      this.methodName = methodName;
    }

    @java.lang.Override
    public com.google.protobuf.Descriptors.MethodDescriptor getMethodDescriptor() {
      return getServiceDescriptor().findMethodByName(methodName);
    }
  }

  private static volatile io.grpc.ServiceDescriptor serviceDescriptor;

  public static io.grpc.ServiceDescriptor getServiceDescriptor() {
    io.grpc.ServiceDescriptor result = serviceDescriptor;
    if (result == null) {
      synchronized (A2AServiceGrpc.class) {
        result = serviceDescriptor;
        if (result == null) {
          serviceDescriptor = result = io.grpc.ServiceDescriptor.newBuilder(SERVICE_NAME)
              .setSchemaDescriptor(new A2AServiceFileDescriptorSupplier())
              .addMethod(getSendMessageMethod())
              .addMethod(getSendStreamingMessageMethod())
              .addMethod(getGetTaskMethod())
              .addMethod(getListTasksMethod())
              .addMethod(getCancelTaskMethod())
              .addMethod(getSubscribeToTaskMethod())
              .addMethod(getCreateTaskPushNotificationConfigMethod())
              .addMethod(getGetTaskPushNotificationConfigMethod())
              .addMethod(getListTaskPushNotificationConfigsMethod())
              .addMethod(getGetExtendedAgentCardMethod())
              .addMethod(getDeleteTaskPushNotificationConfigMethod())
              .build();
        }
      }
    }
    return result;
  }
}
