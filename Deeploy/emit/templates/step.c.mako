## One step: its constant tables.
<%def name="buffers(b)">\
{${b.bytes if b else 0}, {${", ".join(map(str, b.offsets)) if b else 0}}, ${b.copies if b else 0}}\
</%def>\
<%def name="block(b)">\
{${b.bytes if b else 0}, {${b.offset if b else 0}}, ${1 if b else 0}}\
</%def>\
<%def name="tables(s)">\
<%
axis, text = define("dp_axis[]", s.name + "_axis", ", ".join("{%d, %d, %d, %d}" % a for a in s.axes))
operands, calls = [], []
for o in s.operands:
    dim = term = "NULL"
    if o.dims:
        dim, more = define("dp_dim[]", o.table + "_dim", ", ".join("{%s}" % ", ".join(map(integer, d)) for d in o.dims))
        text += more
    if o.terms:
        term, more = define("dp_term[]", o.table + "_term", ", ".join("{%d, %s}" % (a, integer(c)) for a, c in o.terms))
        text += more
    order = ", ".join(map(str, o.operand.memory_order)) or "0"
    fields = "%s, %s, %d, %d, %d, {%s}" % (dim, term, len(o.dims), o.operand.tensor.dtype.size, o.axes_mask, order)
    table, more = define("dp_operand", o.table, fields)
    text += more
    imm = "NULL"
    if o.literal is not None:
        imm, more = define("uint8_t[]", o.table + "_imm", ", ".join(map(str, o.literal)))
        text += more
    operands.append((o, table, imm))
for c in s.calls:
    constants = "NULL"
    if c.constants:
        constants, more = define(c.struct, c.table, c.constants)
        text += more
        constants = "&" + constants
    calls.append((c, constants))
%>\
${text}\
static const dp_step_operand ${s.name}_operand[] = {
% for o, table, imm in operands:
  /* ${o.comment} */
  {&${table}, ${"NULL" if o.literal is not None else "&" + o.pointer}, ${o.offset}, ${imm}, ${int(o.loads)}, ${int(o.stores)}, ${buffers(o.near)}, ${buffers(o.far)}},
% endfor
};
static const dp_call ${s.name}_call[] = {
% for c, constants in calls:
  {${c.symbol}, ${constants}, ${len(c.operands)}, ${len(c.axes)}, {${", ".join(str(o.index) for o in c.operands)}}, {${", ".join(map(str, c.axes)) or 0}}},
% endfor
};
static const dp_step ${s.name} = {{${axis}, ${len(s.axes)}, {${", ".join(map(str, s.plan.order))}}}, ${s.name}_operand, ${s.name}_call, ${len(s.operands)}, ${len(s.calls)}, ${s.plan.cores}, ${int(bool(s.far) or s.outer_boxes > 1)}, ${block(s.plan.accumulator)}, ${block(s.plan.scratch)}};
</%def>\
