/* The works on graphs. `plain.c` includes this file, which uses its table of functions and its objects.
 *
 * All graphs are chains of the kernel with three arguments. Those that an executable graph is updated from, and
 * those that are destroyed, have memory of their own. */

enum { SIZES = 4, GRAPHS = 32, LARGEST = 1000, NODES = 100, DOOMED = 8 };

static const size_t nodes_of[SIZES] = {1, 10, 100, LARGEST};
/* The number of graphs of each size to instantiate in one batch. */
static const size_t graphs_of[SIZES] = {GRAPHS, 16, 8, 2};

static handle sources[SIZES][GRAPHS], made[SIZES][GRAPHS], launched[SIZES];
static handle growing, last, changed, changed_from, changed_to[2], changed_nodes[NODES];
static handle doomed[DOOMED], doomed_graphs[DOOMED];
/* Memory that one graph uses. */
static address doomed_memory[DOOMED][2];

/* Adds a node after the previous one, or a root. */
static void add(handle *node, handle graph, const handle *previous, const address *memory) {
    struct { address a, b; unsigned c; } room, *at = &room;
    UNKNOWN(at);
    at->a = memory[0], at->b = memory[1], at->c = 8;
    void *arguments[] = {&at->a, &at->b, &at->c};
    struct kernel_node parameters = {three, {1, 1, 1}, {32, 1, 1}, 0, arguments, NULL, NULL, NULL};
    CALL(cuGraphAddKernelNode_v2, node, graph, previous, *previous != NULL, &parameters);
}

/* Writes the nodes to `nodes` if it is not null. */
static handle chain_with(size_t count, handle *nodes, const address *memory) {
    handle graph, previous = NULL;
    CALL(cuGraphCreate, &graph, 0);
    for (size_t i = 0; i < count; ++i) {
        handle node;
        add(&node, graph, &previous, memory);
        previous = node;
        if (nodes)
            nodes[i] = node;
    }
    return graph;
}

static handle chain(size_t count, handle *nodes) { return chain_with(count, nodes, buffers); }

/* Returns a graph with memory of its own. */
static handle own_chain(size_t count, address *memory) {
    for (int i = 0; i < 2; ++i)
        CALL(cuMemAllocAsync, &memory[i], KIB4, streams[0]);
    return chain_with(count, NULL, memory);
}

static handle instantiate(handle graph) {
    handle executable;
    struct instantiation parameters = {0};
    CALL(cuGraphInstantiateWithParams, &executable, graph, &parameters);
    return executable;
}

static handle instantiate_launched(handle graph) {
    handle executable = instantiate(graph);
    CALL(cuGraphLaunch, executable, streams[0]);
    return executable;
}

/* Returns whether the driver has the functions that the works call. */
int plain_graphs_setup(void) {
    if (!driver.cuGraphInstantiateWithParams || !driver.cuGraphExecUpdate_v2)
        return 0;
    for (size_t size = 0; size < SIZES; ++size) {
        for (size_t i = 0; i < graphs_of[size]; ++i)
            sources[size][i] = chain(nodes_of[size], NULL);
        launched[size] = instantiate_launched(chain(nodes_of[size], NULL));
    }
    CALL(cuGraphCreate, &growing, 0);
    changed_from = chain(NODES, changed_nodes);
    address memory[2];
    changed_to[0] = own_chain(NODES, memory);
    changed_to[1] = own_chain(NODES, memory);
    changed = instantiate_launched(changed_from);
    for (size_t i = 0; i < DOOMED; ++i) {
        doomed[i] = instantiate_launched(changed_from);
        doomed_graphs[i] = own_chain(NODES, doomed_memory[i]);
    }
    CALL(cuCtxSynchronize);
    return 1;
}

WORK(graph_add) {
    TIMES {
        handle node;
        add(&node, growing, &last, buffers);
        last = node;
    }
}

void plain_graph_add_again(void) {
    CALL(cuGraphDestroy, growing);
    CALL(cuGraphCreate, &growing, 0);
    last = NULL;
}

/* Instantiates new graphs. */
void plain_graph_instantiate(size_t size, size_t n) {
    TIMES made[size][i] = instantiate(sources[size][i]);
}

void plain_graph_instantiate_again(size_t size) {
    for (size_t i = 0; i < graphs_of[size]; ++i) {
        if (made[size][i])
            CALL(cuGraphExecDestroy, made[size][i]);
        made[size][i] = NULL;
        CALL(cuGraphDestroy, sources[size][i]);
        sources[size][i] = chain(nodes_of[size], NULL);
    }
}

void plain_graph_launch(size_t size, size_t n) { TIMES CALL(cuGraphLaunch, launched[size], streams[0]); }

WORK(graph_change) {
    TIMES {
        struct { address a, b; unsigned c; } room, *at = &room;
        UNKNOWN(at);
        at->a = buffers[0], at->b = buffers[1], at->c = (unsigned)i;
        void *arguments[] = {&at->a, &at->b, &at->c};
        struct kernel_node parameters = {three, {1, 1, 1}, {32, 1, 1}, 0, arguments, NULL, NULL, NULL};
        CALL(cuGraphExecKernelNodeSetParams_v2, changed, changed_nodes[i % NODES], &parameters);
    }
}

WORK(graph_update) {
    TIMES {
        struct update update = {0};
        CALL(cuGraphExecUpdate_v2, changed, changed_to[i % 2], &update);
    }
}

WORK(graph_destroy_executable) {
    TIMES {
        CALL(cuGraphExecDestroy, doomed[i]);
        doomed[i] = NULL;
    }
}

void plain_graph_destroy_executable_again(void) {
    for (size_t i = 0; i < DOOMED; ++i)
        if (!doomed[i])
            doomed[i] = instantiate_launched(changed_from);
    CALL(cuCtxSynchronize);
}

WORK(graph_destroy) {
    TIMES {
        CALL(cuGraphDestroy, doomed_graphs[i]);
        CALL(cuMemFreeAsync, doomed_memory[i][0], streams[0]);
        CALL(cuMemFreeAsync, doomed_memory[i][1], streams[0]);
        doomed_graphs[i] = NULL;
    }
}

void plain_graph_destroy_again(void) {
    for (size_t i = 0; i < DOOMED; ++i)
        if (!doomed_graphs[i])
            doomed_graphs[i] = own_chain(NODES, doomed_memory[i]);
}

/* A chain of 100 kernels, by a graph and by the stream, and the wait for it. */
void plain_replay_graph(void) { CALL(cuGraphLaunch, launched[2], streams[0]); }
void plain_replay_stream(void) { plain_launch_three(NODES); }
void plain_replay_wait(void) { CALL(cuStreamSynchronize, streams[0]); }
