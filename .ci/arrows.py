"""The drawing of the tree: which file uses which other file, and which folder uses which other folder.

A file uses another file when it includes it, or when its object file needs a symbol that the other's object file defines.
A room is a folder without its subfolders, or a file or a folder with its subfolders where the list of floors says so.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
from collections import defaultdict
from types import SimpleNamespace

CODE_FOLDERS = ("daemon", "kernels", "clients", "proto")
C_FILES = (".c", ".h", ".cu", ".cuh")
# Functions of libc that daemon/server/transport/connections.c replaces for libzmq. Other callers mean those of libc.
LIBC = ("accept4", "recv")


def is_code(path):
    return path.split("/")[0] in CODE_FOLDERS and path.endswith(C_FILES)


def read_text(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


# The list of floors. The file .ci/floors describes its format.


def read_floors(text):
    floors = SimpleNamespace(declared=set(), height={}, also=set(), only={}, never=set(), one_room=[], foreign={}, faults=[])
    floors.no_file_circles, floors.no_call_circles = [], []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#")[0].split()
        if words:
            read_floor_line(floors, -number, words)
    return floors


def read_floor_line(floors, height, words):
    keywords = ("only", "never", "foreign", "one-room", "no-file-circles", "no-call-circles")
    line = list(words)
    keyword = words.pop(0) if words[0] in keywords else None
    arrow = words.index("->") if "->" in words else len(words)
    left, right = words[:arrow], words[arrow + 1 :]
    needs_right = arrow < len(words) or keyword in ("only", "never", "foreign")
    if not left or (needs_right and not right):
        floors.faults.append(f"line {-height} of .ci/floors lacks a room: {' '.join(line)}")
    pairs = {(user, used) for user in left for used in right}
    if keyword in ("one-room", "no-file-circles", "no-call-circles"):
        getattr(floors, keyword.replace("-", "_")).extend(left)
    elif keyword in ("foreign", "only"):
        getattr(floors, keyword).update({name: right for name in left})
    elif keyword == "never":
        floors.never |= pairs
    elif right:
        floors.also |= pairs
    else:
        floors.height.update({room: height for room in left})
    if keyword in (None, "only"):
        floors.declared |= set(left)


def names_in(floors):
    """Returns every room that the list of floors names."""
    pairs = floors.also | floors.never | {(user, used) for user in floors.only for used in floors.only[user]}
    return floors.declared.union(floors.one_room, floors.no_file_circles, floors.no_call_circles, *pairs)


def room_of(floors, path):
    if path in floors.declared:
        return path
    return next((room for room in floors.one_room if path.startswith(room + "/")), os.path.dirname(path))


def rule_against(floors, user, used):
    """Returns the rule that forbids the room `user` to use the room `used`, or None."""
    if (user, used) in floors.never:
        return f"the line 'never {user} -> {used}'"
    if user in floors.only:
        return None if used in floors.only[user] else f"the line 'only {user} -> {' '.join(floors.only[user])}'"
    if (user, used) in floors.also:
        return None
    if user not in floors.height or used not in floors.height:
        return "no line of .ci/floors permits it"
    if floors.height[user] > floors.height[used]:
        return None
    return f"{used} is {'on the same floor' if floors.height[user] == floors.height[used] else 'on a floor above'}"


# Uses: {(user file, used file): {"includes": file names, "calls": symbols}}.


def find_uses(root, files, build):
    """Returns all uses between files, and a list of remarks about what was not looked at."""
    uses = defaultdict(lambda: {"includes": set(), "calls": set()})
    for path in filter(is_code, files):
        for header in re.findall(r'^\s*#\s*include\s*"([^"]+)"', read_text(root, path), re.M):
            beside = os.path.normpath(os.path.join(os.path.dirname(path), header))
            for used in [name for name in (beside, header) if name in files][:1]:
                uses[path, used]["includes"].add(used)
    objects, remarks = find_objects(build, files)
    for user, used, symbol in find_calls(objects):
        uses[user, used]["calls"].add(symbol)
    return {pair: use for pair, use in uses.items() if pair[0] != pair[1]}, remarks


def find_objects(build, files):
    """Returns {object file: source file} of a build with CMake, without the tests' sources, and remarks."""
    commands = os.path.join(build, "compile_commands.json")
    if not os.path.exists(commands) or not shutil.which("nm"):
        return {}, [f"calls between object files: nm is missing, or there is no build in {build}"]
    home = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", read_text(build, "CMakeCache.txt"), re.M).group(1)
    objects, lacking = {}, set()
    for entry in json.loads(read_text(build, "compile_commands.json")):
        source = os.path.relpath(entry["file"], home)
        arguments = shlex.split(entry["command"])
        output = os.path.join(entry["directory"], arguments[arguments.index("-o") + 1])
        object_file = os.path.join(build, os.path.relpath(output, entry["directory"]))
        if is_code(source) and source in files and os.path.exists(object_file):
            objects[object_file] = source
        elif is_code(source):
            lacking.add(source)
    lacking -= set(objects.values())
    remark = f"calls of {len(lacking)} files such as {min(lacking, default='')}: {build} is of another tree or not complete"
    return objects, [remark] if lacking else []


def find_calls(objects):
    """Yields (user file, used file, symbol). Of several definitions, those nearest to the user in the tree count."""
    defined, needed = defaultdict(set), set()
    listing = subprocess.run(["nm", "-A", "-P", *objects], capture_output=True, text=True).stdout if objects else ""
    for line in listing.splitlines():
        object_file, _, symbol = line.partition(": ")
        name, kind = symbol.split()[:2]
        if name in LIBC:
            continue
        if kind in "TDBRCGSVW":
            defined[name].add(objects[object_file])
        elif kind in "Uvw":
            needed.add((objects[object_file], name))
    for user, name in needed:
        shared = {source: len(os.path.commonpath([user, source])) for source in defined[name]}
        for used in shared:
            if shared[used] == max(shared.values()):
                yield user, used, name


# Graphs: {node: {node: [(user file, used file)]}}.


def make_graph(nodes, uses, node_of):
    """Joins uses between files to arrows between nodes. Files whose node is None are left out."""
    graph = {node: {} for node in nodes}
    for pair in sorted(uses):
        user, used = map(node_of, pair)
        if user and used and user != used:
            graph.setdefault(used, {})
            graph[user].setdefault(used, []).append(pair)
    return graph


def room_graph(floors, files, uses):
    rooms = {room_of(floors, path) for path in files if is_code(path)}
    return make_graph(rooms, uses, lambda path: room_of(floors, path))


def file_graph(floors, files, uses, room):
    """Returns the graph of the files of one room. foo.c and foo.h are one node."""

    def node_of(path):
        stem, extension = os.path.splitext(path)
        if room_of(floors, path) != room or not is_code(path):
            return None
        return stem if extension in (".c", ".cu") or stem + ".c" in files or stem + ".cu" in files else path

    return make_graph({node_of(path) for path in files} - {None}, uses, node_of)


def only_calls(uses):
    return {pair: use for pair, use in uses.items() if use["calls"]}


def find_circles(graph):
    """Returns the circles, each as a sorted list of all nodes that reach each other."""
    reach = {node: reachable(graph, node) for node in graph}
    circles = {tuple(sorted(other for other in reach[node] if node in reach[other])) for node in graph}
    return sorted(list(circle) for circle in circles if circle)


def reachable(graph, start):
    found, waiting = set(), [start]
    while waiting:
        new = set(graph[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def find_heights(graph):
    """Returns the floor of each node, 1 at the bottom: the longest way down. Nodes of one circle share a floor."""
    circle_of = {node: circle for circle in find_circles(graph) for node in circle}
    heights = {}

    def height(node):
        if node not in heights:
            group = circle_of.get(node, [node])
            below = {used for member in group for used in graph[member]} - set(group)
            heights.update(dict.fromkeys(group, 1 + max(map(height, below), default=0)))
        return heights[node]

    return {node: height(node) for node in graph}


# Printing.


def print_drawing(floors, files, uses):
    graph = room_graph(floors, files, uses)
    circles, heights = find_circles(graph), find_heights(graph)

    def is_up(user, used):
        if {user, used} <= floors.declared:
            return bool(rule_against(floors, user, used))
        return any(user in circle and used in circle for circle in circles)

    print("Each folder, and below it the folders that it uses, with the number of includes + the number of symbols.")
    print("UP: the list of floors forbids the arrow or, where the list lacks a folder, the arrow is inside a circle.")
    for room in sorted(graph, key=lambda room: (-heights[room], room)):
        print(f"floor {heights[room]:2}  {room}")
        for used in sorted(graph[room], key=lambda used: (-heights[used], used)):
            includes, calls = (sum(len(uses[pair][kind]) for pair in graph[room][used]) for kind in ("includes", "calls"))
            print(f"            {'UP' if is_up(room, used) else '->'} {used} {includes}+{calls}")
    arrows = [(user, used) for user in graph for used in graph[user]]
    up = sum(is_up(*arrow) for arrow in arrows)
    print(f"{len(graph)} folders on {max(heights.values(), default=0)} floors, {len(arrows)} arrows, {up} of them up")
    print(f"circles between folders: {len(circles)}" + "".join(f"\n    {' '.join(circle)}" for circle in circles))
    print("circles between files of one folder, as number (size of the largest), by includes and calls, and by calls alone:")
    for room in sorted(graph):
        both, calls = (find_circles(file_graph(floors, files, part, room)) for part in (uses, only_calls(uses)))
        if both:
            print(f"    {room}: {len(both)} ({max(map(len, both))}), {len(calls)} ({max(map(len, calls), default=0)})")
