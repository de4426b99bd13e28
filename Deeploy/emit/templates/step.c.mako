## One step: its constant tables.
<%def name="buffers(b)">\
{${b.bytes if b else 0}, {${", ".join(map(str, b.offsets)) if b else 0}}, ${b.copies if b else 0}}\
</%def>\
<%def name="block(b)">\
{${b.bytes if b else 0}, {${b.offset if b else 0}}, ${1 if b else 0}}\
</%def>\
<%def name="tables(s)">\
static const dp_axis ${s.name}_axis[] = {${", ".join("{%d, %d, %d, %d}" % a for a in s.axes)}};
% for o in s.operands:
/* ${o.comment} */
% if o.dims:
static const dp_dim ${o.table}_dim[] = {${", ".join("{%s}" % ", ".join(map(integer, d)) for d in o.dims)}};
% endif
% if o.terms:
static const dp_term ${o.table}_term[] = {${", ".join("{%d, %s}" % (a, integer(c)) for a, c in o.terms)}};
% endif
static const dp_operand ${o.table} = {${o.table + "_dim" if o.dims else "NULL"}, ${o.table + "_term" if o.terms else "NULL"}, ${len(o.dims)}, ${o.operand.tensor.dtype.size}, ${o.axes_mask}, {${", ".join(map(str, o.operand.memory_order)) or 0}}};
% if o.literal is not None:
static const uint8_t ${o.table}_imm[] = {${", ".join(map(str, o.literal))}};
% endif
% endfor
static const dp_step_operand ${s.name}_operand[] = {
% for o in s.operands:
  {&${o.table}, ${"NULL" if o.literal is not None else "&" + o.pointer}, ${o.offset}, ${o.table + "_imm" if o.literal is not None else "NULL"}, ${int(o.loads)}, ${int(o.stores)}, ${buffers(o.near)}, ${buffers(o.far)}},
% endfor
};
% for c in s.calls:
% if c.constants:
static const ${c.struct} ${c.table} = {${c.constants}};
% endif
% endfor
static const dp_call ${s.name}_call[] = {
% for c in s.calls:
  {${c.symbol}, ${"&" + c.table if c.constants else "NULL"}, ${len(c.operands)}, ${len(c.axes)}, {${", ".join(str(o.index) for o in c.operands)}}, {${", ".join(map(str, c.axes)) or 0}}},
% endfor
};
static const dp_step ${s.name} = {{${s.name}_axis, ${len(s.axes)}, {${", ".join(map(str, s.plan.order))}}}, ${s.name}_operand, ${s.name}_call, ${len(s.operands)}, ${len(s.calls)}, ${s.plan.cores}, ${int(bool(s.far) or s.outer_boxes > 1)}, ${block(s.plan.accumulator)}, ${block(s.plan.scratch)}};
</%def>\
